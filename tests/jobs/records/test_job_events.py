"""The bodies of events: what is stored and streamed is what is read again."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.jobs.records import job_events
from torchyard.jobs.records.job_events import (
    EventBody,
    Notice,
    OtherEvent,
    StageChanged,
    StatusChanged,
)
from torchyard.jobs.records.types import Stage, Status

BODIES: list[tuple[EventBody, dict[str, Any]]] = [
    (StatusChanged(Status.RUNNING), {"status": "Running"}),
    (StageChanged(Stage.SCALING, "end"), {"stage": "Scaling", "state": "end", "waited_for": ""}),
    (
        StageChanged(Stage.PREPARING, "start", "the environment is being built", 0),
        {
            "stage": "Preparing",
            "state": "start",
            "waited_for": "the environment is being built",
            "build_log_offset": 0,
        },
    ),
    (Notice("two nodes share a machine"), {"message": "two nodes share a machine"}),
    (OtherEvent("checkpoint", {"step": 3}), {"step": 3}),
]


@pytest.mark.parametrize(("body", "stored"), BODIES)
def test_a_body_is_stored_by_its_kind_and_read_again(
    body: EventBody, stored: dict[str, Any]
) -> None:
    assert body.to_json() == stored
    assert job_events.from_json(body.kind, stored) == body
