"""What the summary at a job's end says of the time that it took."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.cli.jobs import streaming

JOB: dict[str, Any] = {
    "name": "j",
    "type": "command",
    "status": "Failed",
    "created_at": "2026-01-01T10:00:00Z",
    "ended_at": "2026-01-01T10:00:41Z",
}


@pytest.mark.parametrize(
    ("changes", "took"),
    [
        ({"started_at": "2026-01-01T10:00:20Z", "duration_s": 17.0}, "17 s for the command"),
        ({}, "41 s; the command did not start"),
        ({"type": "pipeline"}, "41 s"),
    ],
)
def test_only_a_command_that_ran_took_time(changes: dict[str, Any], took: str) -> None:
    lines = streaming.summary({**JOB, **changes}).splitlines()
    assert [line.split(None, 1)[1] for line in lines if line.startswith("Took:")] == [took]
