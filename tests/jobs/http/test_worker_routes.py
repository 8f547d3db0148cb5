"""What workers are told."""

from __future__ import annotations

import pytest

from torchyard.jobs.attempts.worker_reports import StopRequest
from torchyard.jobs.http import worker_routes


@pytest.mark.parametrize(("order", "sent"), [("", ""), ("stop", "stop"), ("kill", "stop")])
def test_a_worker_of_the_previous_release_is_only_ever_told_to_stop(order: str, sent: str) -> None:
    body = worker_routes._control(StopRequest(order, "cancel"))
    assert body == {"control": sent, "reason": "cancel", "urgent": order == "kill"}
