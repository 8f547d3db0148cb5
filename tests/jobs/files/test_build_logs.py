"""The log of the build that a job waits for, among the job's files."""

from __future__ import annotations

import threading

from jobs import support
from torchyard.data.store import put_datastore
from torchyard.data.types import Datastore
from torchyard.environments.types import from_json as environment_from_json
from torchyard.jobs.files import artifacts, build_logs
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduling.preparing import Preparer
from torchyard.jobs.services import Services


def _say(services: Services, job: Job, text: str) -> None:
    """Continue the log of the job's environment."""
    with services.db.read() as connection:
        environment = environment_from_json(store.environment_of(connection, job.id))
    path = services.environments.folders.log_path(environment.hash)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as log:
        log.write(text)


def _read(services: Services, job: Job) -> str:
    return artifacts.file(services, job, build_logs.PATH).read_text()


def test_it_grows_while_the_job_waits_and_stays(services: Services) -> None:
    job = support.submit(services)
    assert not build_logs.is_there(services, job)
    _say(services, job, "of an earlier build\n")
    with services.db.write() as connection:
        progress.move(connection, job, Status.PREPARING, services.clock.now())
        progress.start_preparing(connection, job, services.clock.now(), 20)
    waiting = support.again(services, job)
    assert waiting.status is Status.PREPARING
    for number in range(2):
        _say(services, job, f"line {number}\n")
        assert build_logs.is_there(services, waiting)
    assert _read(services, job) == "line 0\nline 1\n"
    with services.db.write() as connection:
        progress.end(connection, waiting, Status.CANCELED, services.clock.now())
    _say(services, job, "of a later build\n")
    assert build_logs.is_there(services, support.again(services, job))
    assert _read(services, job) == "line 0\nline 1\n"


def test_the_secrets_that_it_must_not_show(services: Services) -> None:
    """Those of the jobs that wait, and of the datastores in their workspaces."""
    job = support.submit(services, environment_variables={"MY_TOKEN": "tr0ub4dor&3"})
    with services.db.write() as connection:
        for workspace, key in ((job.workspace, "a2V5LW9mLW1pbmU="), ("other", "b2Ytb3RoZXJz")):
            options = {"account_key": key}
            now = services.clock.now()
            far = Datastore(workspace, "far", "azure_blob", "az://acc/c", now, options)
            put_datastore(connection, far)
        progress.move(connection, job, Status.PREPARING, services.clock.now())
        environment = environment_from_json(store.environment_of(connection, job.id))
    preparer = Preparer(services, threading.Event())
    try:
        assert preparer.secrets(environment) == {"tr0ub4dor&3": 8, "a2V5LW9mLW1pbmU=": 8}
    finally:
        preparer.close()
