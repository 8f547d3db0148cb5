"""What workers are told."""

from __future__ import annotations

import pytest

from jobs import support
from jobs.support import attempt_of
from torchyard.base.errors import NotFound
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts.worker_reports import StopRequest
from torchyard.jobs.http import worker_routes
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services


@pytest.mark.parametrize(("order", "sent"), [("", ""), ("stop", "stop"), ("kill", "stop")])
def test_a_worker_of_the_previous_release_is_only_ever_told_to_stop(order: str, sent: str) -> None:
    body = worker_routes._control(StopRequest(order, "cancel"))
    assert body == {"control": sent, "reason": "cancel", "urgent": order == "kill"}


def test_a_worker_reads_what_its_jobs_workspace_has(services: Services) -> None:
    sha256 = services.blobs.of("vision").put_bytes(b"of vision")
    job = support.submit(services)
    Scheduler(services, FakeExecutor(), "http://127.0.0.1:1").run_round()
    attempt = attempt_of(services, job)
    with pytest.raises(NotFound):
        worker_routes.get_blob(services, attempt.id, sha256)
    services.blobs.of(job.workspace).put_bytes(b"of vision")
    assert worker_routes.get_blob(services, attempt.id, sha256).status_code == 200
