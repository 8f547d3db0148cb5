"""One round of one validation or release: what its stage needs next.

Owns: the order of the gates, beginning and ending the job, creating validation jobs and waiting for
them, registering the version.
Leaves: what a stage finds out to stages.py, who runs rounds to keeper.py.
Always: what a stage found is stored before the next one begins, so that another server goes on from
there; a version is registered in the transaction that ends its release; a gate that fails ends the
release, names itself and registers nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from torchyard.base.db import Database
from torchyard.base.errors import DatabaseUnreachable, DiskFull, TorchyardError
from torchyard.compute import actions as computes
from torchyard.environments.types import BuildCanceled
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job, JobError, Status
from torchyard.jobs.requests import parents, submission
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.releases.records import store
from torchyard.releases.records.types import (
    AUDIT,
    BUILD,
    FAILED,
    LABEL,
    PASSED,
    REGISTER,
    RELEASE,
    RESOLVE,
    SKIPPED,
    VALIDATE,
    Gate,
    Record,
)
from torchyard.releases.running import log, registering, reports, stages, validation_jobs
from torchyard.workspaces.types import Identity, TokenKind

CANCELED = "release_ended"
_LONGEST = 4000
_ORDER = (RESOLVE, BUILD, LABEL, AUDIT, VALIDATE, REGISTER)
_STAGES = {
    RESOLVE: stages.resolve,
    BUILD: stages.build,
    LABEL: stages.label,
    AUDIT: stages.audit,
}


def run(services: Services, job: Job, is_stopping: Callable[[], bool]) -> bool:
    """One round; False where the job has ended, or only a later round can go on."""
    with services.db.read() as connection:
        current = parents.by_id(connection, [job.id]).get(job.id)
        record = store.of_job_id(connection, job.workspace, job.name, job.id)
    if current is None or current.status.ended or record is None:
        return False
    if current.status is Status.CANCEL_REQUESTED:
        return _cancel(services, current, record)
    if current.status is Status.NOT_STARTED:
        current = _begin(services, current)
    record = replace(record, stage=record.stage or _first(record))
    if record.stage in _STAGES:
        return _work(services, current, record, is_stopping)
    if record.stage == VALIDATE:
        return _validate(services, current, record)
    if "wheels" not in record.results and not record.request.get("dry_run"):
        return _keep_wheels(services, current, record, is_stopping)
    return _register(services, current, record)


def _first(record: Record) -> str:
    return RESOLVE if record.kind == RELEASE else VALIDATE


def _begin(services: RecordServices, job: Job) -> Job:
    with services.db.write() as connection:
        current = parents.by_id(connection, [job.id])[job.id]
        if current.status is Status.NOT_STARTED:
            current = parents.begin(connection, current, services.clock.now())
    services.signals.notify(jobs.job_key(job))
    return current


def _work(
    services: FileServices, job: Job, record: Record, is_stopping: Callable[[], bool]
) -> bool:
    """Run a stage of the server's own, outside any transaction, then store what it came to."""

    def is_canceled() -> bool:
        return is_stopping() or _status(services.db, job) is not Status.RUNNING

    try:
        gate, results = _STAGES[record.stage](services, record, is_canceled)
    except BuildCanceled:
        return not is_stopping()
    except (DatabaseUnreachable, DiskFull, RunnerUnreachable):
        raise  # the next round does it again
    except TorchyardError as error:
        gate, results = Gate(record.stage, FAILED, error.message), {}
        return _refuse(services, job, record, gate, error.hint)
    record = replace(record, results={**record.results, **results})
    if gate.status == FAILED:
        return _refuse(services, job, record, gate)
    if stages.is_over(record, gate):
        return _end_unchanged(services, job, record, gate)
    return _pass(services, job, record, gate)


def _pass(services: FileServices, job: Job, record: Record, gate: Gate) -> bool:
    """Store the gate, and go on with the next one."""
    following = _ORDER[_ORDER.index(gate.name) + 1]
    record = replace(record, stage=following, gates=(*record.gates, gate))
    with services.db.write() as connection:
        store.change(connection, record)
    log.add(services, job, [f"{gate.name}: {gate.status}", *gate.message.splitlines()])
    return True


def _refuse(services: FileServices, job: Job, record: Record, gate: Gate, hint: str = "") -> bool:
    """End as failed: this gate stops it."""
    record = replace(record, gates=(*record.gates, gate))
    code, verb = "gate_failed", "releases"
    subject = f"the release of `{record.environment}` is refused by the gate `{gate.name}`"
    if record.kind != RELEASE:
        code, verb = "validation_failed", "validations"
        subject = f"the validation of `{record.base}` failed"
    shown = f"`yard environment {verb} {record.environment} --job {job.name}` shows all of it"
    error = JobError(code, f"{subject}: {gate.message}"[:_LONGEST], hint or shown)
    log.add(services, job, [f"{gate.name}: {gate.status}", *gate.message.splitlines()])
    _end(services, job, record, Status.FAILED, error)
    return False


def _end_unchanged(services: FileServices, job: Job, record: Record, gate: Gate) -> bool:
    """End well without a version: nothing moved since the base."""
    reason = ": each package is listed in one version" if record.results.get("is_pinned") else ""
    register = Gate(REGISTER, SKIPPED, f"nothing moved since {record.base}{reason}")
    validate = Gate(VALIDATE, SKIPPED, "nothing moved")
    record = replace(record, stage=REGISTER, gates=(*record.gates, gate, validate, register))
    log.add(services, job, [f"{gate.name}: {gate.status}", register.message])
    _end(services, job, record, Status.COMPLETED, None)
    return False


def _end(
    services: RecordServices, job: Job, record: Record, status: Status, error: JobError | None
) -> None:
    with services.db.write() as connection:
        store.change(connection, record)
        parents.end(connection, job, status, error, services.clock.now())
    services.signals.notify(jobs.job_key(job))


def _status(db: Database, job: Job) -> Status | None:
    with db.read() as connection:
        current = parents.by_id(connection, [job.id]).get(job.id)
    return None if current is None else current.status


def _children(services: FileServices, record: Record) -> list[Job]:
    """The validation jobs that exist."""
    names = validation_jobs.workloads_by_job(services.blobs.of(record.workspace), record)
    children = (jobs.find_by_name(services.db, record.workspace, name) for name in names)
    return [job for job in children if job is not None and job.parent == record.job]


def _cancel(services: Services, job: Job, record: Record) -> bool:
    """Cancel the validation jobs, and end once they have."""
    live = [child for child in _children(services, record) if not child.status.ended]
    why = JobError(CANCELED, f"`{job.name}` ends", "")
    for child in live:
        if child.status is not Status.CANCEL_REQUESTED:
            jobs.cancel(services, child.workspace, child.name, why)
    if any(not child.status.ended for child in _children(services, record)):
        return False
    _end(services, job, record, Status.CANCELED, job.error)
    return False


def _validate(services: Services, job: Job, record: Record) -> bool:
    """Create the validation jobs that are missing; once all have ended, judge them."""
    workloads = validation_jobs.workloads_by_job(services.blobs.of(record.workspace), record)
    existing = {child.name: child for child in _children(services, record)}
    if set(existing) != set(workloads):
        try:
            _create_jobs(services, job, record, existing)
        except (DatabaseUnreachable, DiskFull):
            raise
        except TorchyardError as error:
            gate = Gate(VALIDATE, FAILED, f"its jobs can't be submitted: {error.message}")
            return _refuse(services, job, record, gate, error.hint)
        return False
    if not all(child.status.ended for child in existing.values()):
        return False
    by_job = [
        reports.results_of(services, child, workloads[name]) for name, child in existing.items()
    ]
    report = reports.report(
        _tested(record),
        list(existing.values()),
        by_job,
        stages.label_of(services.environments, record),
        stages.content_of(services.environments, record),
    )
    return _judge(services, job, replace(record, report=report))


def _tested(record: Record) -> str:
    return record.base if record.kind != RELEASE else f"{record.environment}, the next version"


def _create_jobs(services: Services, job: Job, record: Record, existing: dict[str, Job]) -> None:
    environment, requested, variables = stages.environment_of(services.environments, record)
    compute = str(record.request.get("compute") or "local")
    with services.db.read() as connection:
        cluster = computes.find(connection, record.workspace, compute.removeprefix("azureml:"))
    node_limit = cluster.max_instances if cluster is not None else 2
    owner = Identity(record.owner, TokenKind.PERSON)
    blobs = services.blobs.of(record.workspace)
    documents = validation_jobs.documents_of(
        blobs, record, environment, requested, variables, node_limit
    )
    for document in documents:
        if document["name"] not in existing:
            submission.create_new(services, record.workspace, document, owner)
            log.add(services, job, [f"validate: job {document['name']} is submitted"])


def _judge(services: FileServices, job: Job, record: Record) -> bool:
    report = record.report
    wrong = [*reports.failures(report), *_lost(services.db, record)]
    counts = f"{report['passed']} passed, {report['failed']} failed, {report['skipped']} skipped"
    if not wrong and not report["passed"]:
        wrong = ["no workload ran: all were skipped"]
    if wrong:
        return _refuse(services, job, record, Gate(VALIDATE, FAILED, "; ".join(wrong)[:_LONGEST]))
    gate = Gate(VALIDATE, PASSED, counts)
    if record.kind == RELEASE:
        return _pass(services, job, record, gate)
    log.add(services, job, [f"validate: {counts}"])
    _end(services, job, replace(record, gates=(gate,)), Status.COMPLETED, None)
    return False


def _lost(db: Database, record: Record) -> Sequence[str]:
    """What passed in the base's last report, and is skipped in the version to come."""
    if record.kind != RELEASE:
        return ()
    before = stages.last_report(db, record)
    return reports.lost(record.report, before) if before else ()


def _keep_wheels(
    services: FileServices, job: Job, record: Record, is_stopping: Callable[[], bool]
) -> bool:
    """Keep the wheels of what is to be registered; a version without them says so."""

    def is_canceled() -> bool:
        return is_stopping() or _status(services.db, job) is not Status.RUNNING

    try:
        wheels = stages.keep_wheels(services, record, is_canceled)
    except BuildCanceled:
        return not is_stopping()
    with services.db.write() as connection:
        store.change(connection, replace(record, results={**record.results, "wheels": wheels}))
    log.add(services, job, [registering.in_words(wheels)])
    return True


def _register(services: FileServices, job: Job, record: Record) -> bool:
    """Register the version, unless the release was a trial, and end."""
    if record.request.get("dry_run"):
        gate = Gate(REGISTER, SKIPPED, "dry run: nothing is registered")
        record = replace(record, gates=(*record.gates, gate))
        log.add(services, job, [gate.message])
        _end(services, job, record, Status.COMPLETED, None)
        return False
    try:
        with services.db.write() as connection:
            if parents.by_id(connection, [job.id])[job.id].status is not Status.RUNNING:
                return True  # it was canceled meanwhile
            inside = replace(services, db=services.db.joined(connection))
            version = registering.register(inside, record)
            wheels = registering.in_words(record.results["wheels"])
            gate = Gate(REGISTER, PASSED, f"{record.environment}:{version}; {wheels}")
            done = replace(record, version=version, gates=(*record.gates, gate))
            store.change(connection, done)
            properties = {"torchyard.released": f"{record.environment}:{version}"}
            parents.add_properties(connection, job, properties)
            parents.end(connection, job, Status.COMPLETED, None, services.clock.now())
    except (DatabaseUnreachable, DiskFull):
        raise
    except TorchyardError as error:
        return _refuse(services, job, record, Gate(REGISTER, FAILED, error.message), error.hint)
    log.add(services, job, [f"register: {gate.message}", json.dumps(properties)])
    services.signals.notify(jobs.job_key(job))
    return False
