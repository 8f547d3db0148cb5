"""One round of one pipeline.

Owns: the order of a round's steps, starting steps, what a step came to, the pipeline's beginning
and end.
Leaves: who runs rounds to keeper.py, the job of a step to jobs/.
Always: a round reads all that it decides by; a step's row names its job in the transaction that
stores that job, under a name that follows from the pipeline's and the step's: anyone who runs the
round, and however often, a step is started once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from torchyard.base.errors import DatabaseUnreachable, DiskFull, TorchyardError
from torchyard.jobs import actions as jobs
from torchyard.jobs.files import output_assets, outputs
from torchyard.jobs.records.types import Job, JobError, Status, parse_job
from torchyard.jobs.requests import parent_logs, parents, submission
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.jobs.spec.inputs import Output
from torchyard.pipelines.records import step_store
from torchyard.pipelines.records.step_store import Outcome, PipelineRow, StepRow
from torchyard.pipelines.reuse import recipes
from torchyard.pipelines.running import reusing
from torchyard.pipelines.running.creation import child_name
from torchyard.pipelines.spec.plan import Made
from torchyard.workspaces.types import Identity, TokenKind

STEP_FAILED, ENDED = "step_failed", "pipeline_ended"
LOG = "logs/azureml/executionlogs.txt"
# So that news of those that run are not left waiting.
_MOST_AT_ONCE = 50
_OUTCOMES = {
    Status.COMPLETED: Outcome.COMPLETED,
    Status.FAILED: Outcome.FAILED,
    Status.CANCELED: Outcome.CANCELED,
}


@dataclass(frozen=True)
class Done:
    """What a round left: the jobs of steps that run, and whether another round has more to do."""

    is_over: bool
    live: tuple[int, ...] = ()
    is_more: bool = False


@dataclass
class _State:
    job: Job
    row: PipelineRow
    steps: list[StepRow]
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_name = {step.name: step for step in self.steps}

    def put(self, step: StepRow) -> None:
        self.steps[step.number] = self.by_name[step.name] = step

    def of(self, outcome: Outcome) -> list[StepRow]:
        return [step for step in self.steps if step.outcome is outcome]

    @property
    def is_ending(self) -> bool:
        return bool(self.row.ends_as) or self.job.status is Status.CANCEL_REQUESTED

    @property
    def continues(self) -> bool:
        return self._setting("continue_on_step_failure", True)

    @property
    def forces(self) -> bool:
        return self._setting("force_rerun", False)

    def _setting(self, name: str, default: bool) -> bool:
        settings = self.job.document.get("settings") or {}
        return str(settings.get(name, default)).lower() == "true"


def run(services: Services, job_id: int) -> Done:
    state = _load(services, job_id)
    if state is None or state.job.status.ended:
        return Done(is_over=True)
    if state.job.status is Status.NOT_STARTED:
        _begin(services, state)
    _see_ends(services, state)
    _decide_end(services, state)
    is_more = False
    if state.is_ending:
        _cancel(services, state)
    else:
        _skip(services, state)
        is_more = _start_ready(services, state)
    is_over = _finish(services, state)
    _write_log(services, state)
    live = tuple(step.child_id for step in state.of(Outcome.LIVE) if step.child_id is not None)
    return Done(is_over, live, is_more)


def _load(services: RecordServices, job_id: int) -> _State | None:
    with services.db.read() as connection:
        job = parents.by_id(connection, [job_id]).get(job_id)
        row = step_store.pipeline_of(connection, job_id)
        if job is None or row is None:
            return None
        return _State(job, row, step_store.steps_of(connection, job_id))


def _begin(services: RecordServices, state: _State) -> None:
    now = services.clock.now()
    with services.db.write() as connection:
        current = parents.by_id(connection, [state.job.id])[state.job.id]
        if current.status is Status.NOT_STARTED:
            current = parents.begin(connection, current, now)
        state.job = current
    services.signals.notify(jobs.job_key(state.job))
    state.log.append(f"pipeline {state.job.name} begins: {len(state.steps)} steps")


def _see_ends(services: RecordServices, state: _State) -> None:
    """Note what steps came to whose jobs have ended."""
    live = state.of(Outcome.LIVE)
    if not live:
        return
    with services.db.read() as connection:
        by_id = parents.by_id(connection, [step.child_id for step in live if step.child_id])
    for step in live:
        job = by_id.get(step.child_id or 0)
        if job is None:
            _end(services, state, [step], Outcome.CANCELED, f"its job `{step.child_name}` is gone")
        elif job.status.ended:
            reason = job.error.message if job.error else ""
            _end(services, state, [step], _OUTCOMES[job.status], reason)


def _end(
    services: RecordServices,
    state: _State,
    ended: Sequence[StepRow],
    outcome: Outcome,
    reason: str = "",
) -> None:
    now = services.clock.now()
    numbers = [step.number for step in ended]
    with services.db.write() as connection:
        step_store.end(connection, state.job.id, numbers, outcome, reason, now)
    for step in ended:
        state.put(replace(step, outcome=outcome, reason=reason, ended_at=now))
        state.log.append(f"step {step.name}: {outcome.value}" + (f"; {reason}" if reason else ""))
    services.signals.notify(jobs.job_key(state.job))


def _decide_end(services: RecordServices, state: _State) -> None:
    """Whether the pipeline ends since a step failed."""
    failed = state.of(Outcome.FAILED)
    if not failed or state.is_ending or state.continues:
        return
    error = _error(failed)
    with services.db.write() as connection:
        step_store.end_as(connection, state.job.id, Status.FAILED.value)
        parents.set_error(connection, state.job, error)
    state.row = replace(state.row, ends_as=Status.FAILED.value)
    state.job = replace(state.job, error=error)
    state.log.append(f"the pipeline ends: {error.message}")


def _cancel(services: Services, state: _State) -> None:
    """End what runs, and let nothing else begin."""
    waiting = state.of(Outcome.WAITING)
    if waiting:
        _end(services, state, waiting, Outcome.CANCELED, "the pipeline ended before")
    live = state.of(Outcome.LIVE)
    with services.db.read() as connection:
        by_id = parents.by_id(connection, [step.child_id for step in live if step.child_id])
    why = JobError(ENDED, f"pipeline `{state.job.name}` ends", "")
    for job in by_id.values():
        if job.status is not Status.CANCEL_REQUESTED and not job.status.ended:
            jobs.cancel(services, job.workspace, job.name, why)


def _skip(services: RecordServices, state: _State) -> None:
    """End the steps that take what is not made any more."""
    for step in state.of(Outcome.WAITING):  # in the order in which they can run
        for taken in step.takes.values():
            before = state.by_name[taken.step]
            if before.outcome.is_over and before.outcome is not Outcome.COMPLETED:
                reason = f"step `{before.name}`, whose output it takes, {_became(before)}"
                _end(services, state, [step], Outcome.SKIPPED, reason)
                break


def _became(step: StepRow) -> str:
    verbs = {Outcome.FAILED: "failed", Outcome.CANCELED: "was canceled"}
    return verbs.get(step.outcome, "did not run")


def _start_ready(services: Services, state: _State) -> bool:
    """Start the steps whose inputs are there; whether there is more to do at once."""
    started, is_more = 0, False
    for step in state.of(Outcome.WAITING):
        before = [state.by_name[taken.step].outcome for taken in step.takes.values()]
        if any(outcome is not Outcome.COMPLETED for outcome in before):
            continue
        if started == _MOST_AT_ONCE:
            return True
        started += 1
        try:
            _start(services, state, step)
        except (DatabaseUnreachable, DiskFull):
            raise
        except TorchyardError as error:
            _end(services, state, [step], Outcome.FAILED, f"{error.message}: {error.hint}")
        outcome = state.by_name[step.name].outcome
        is_more |= outcome.is_over and bool(state.of(Outcome.WAITING))
    return is_more


def _start(services: Services, state: _State, step: StepRow) -> None:
    """Store a step's job, unless it has one."""
    with services.db.read() as connection:
        document = step_store.document_of(connection, state.job.id, step.number)
    inputs = {name: taken.as_input(_made_by(state, taken)) for name, taken in step.takes.items()}
    document["inputs"] = {**(document.get("inputs") or {}), **inputs}
    document["name"] = child_name(state.job.name, step.name)
    document["parent_job_name"] = state.job.name
    is_reusable = step.is_deterministic and not state.forces
    if is_reusable and _runs_equal(state, step):
        return
    checked = submission.check(services, state.job.workspace, document)
    recipe = reusing.recipe_of(services, state.job.workspace, checked)
    if recipe is not None:
        step = replace(step, key=recipes.key(recipe))
        with services.db.write() as connection:
            step_store.know(connection, state.job.id, step.number, step.key, recipe)
        state.put(step)
    if is_reusable and _runs_equal(state, step):
        state.log.append(f"step {step.name} waits: another one with the same inputs runs")
        return
    if is_reusable and _reuse(services, state, step, checked.spec.outputs):
        return
    owner = Identity(state.job.owner, TokenKind.PERSON)

    def also(connection: Connection, job: Job) -> None:
        started = replace(step, outcome=Outcome.LIVE, child_id=job.id, child_name=job.name)
        step_store.start(connection, state.job.id, started)
        state.put(started)

    job, is_new = submission.create_new(
        services, state.job.workspace, document, owner, also, checked
    )
    if not is_new:  # somebody submitted the very same job under that name
        with services.db.write() as connection:
            also(connection, job)
    state.log.append(f"step {step.name} starts as job {document['name']}")


def _runs_equal(state: _State, step: StepRow) -> bool:
    """Whether another step with the same recipe runs."""
    return bool(step.key) and any(other.key == step.key for other in state.of(Outcome.LIVE))


def _reuse(
    services: Services, state: _State, step: StepRow, as_assets: Mapping[str, Output]
) -> bool:
    """Whether the step is one that has run before; what it made becomes the assets it is to be."""
    made = reusing.find(services, state.job, step.key) if step.key else None
    if made is None:
        return False
    faults = output_assets.register(services, parse_job(made.job), as_assets)
    state.log += [f"step {step.name}: {fault}" for fault in faults]
    now = services.clock.now()
    step = replace(
        step,
        outcome=Outcome.COMPLETED,
        child_id=made.job.id,
        child_name=made.job.name,
        reused_from=made.pipeline,
        ended_at=now,
    )
    with services.db.write() as connection:
        step_store.reuse(connection, state.job.id, step, now)
    state.put(step)
    state.log.append(f"step {step.name} is reused: job {made.job.name} made the same")
    services.signals.notify(jobs.job_key(state.job))
    return True


def _made_by(state: _State, made: Made) -> str:
    """What a step has made."""
    return f"azureml://jobs/{state.by_name[made.step].child_name}/outputs/{made.output}"


def _finish(services: FileServices, state: _State) -> bool:
    """Whether the pipeline has ended now."""
    if state.of(Outcome.LIVE) or state.of(Outcome.WAITING):
        return False
    failed, canceled = state.of(Outcome.FAILED), state.of(Outcome.CANCELED)
    error = state.job.error
    if state.job.status is Status.CANCEL_REQUESTED:
        status = Status.CANCELED
    elif state.row.ends_as:
        status = Status(state.row.ends_as)
    elif failed:
        status, error = Status.FAILED, _error(failed)
    elif canceled:
        names = _listed(step.name for step in canceled)
        error = JobError("step_canceled", f"{names} was canceled", _hint(canceled[0]))
        status = Status.CANCELED
    else:
        status = Status.COMPLETED
    state.log.append(f"the pipeline ends as {status.value}: {_counts(state.steps)}")
    _write_log(services, state)  # before the end, which streams wait for
    with services.db.write() as connection:
        made = _output_jobs(state)
        if made:
            parents.add_properties(connection, state.job, {outputs.MADE_BY: outputs.made_by(made)})
        parents.end(connection, state.job, status, error, services.clock.now())
    services.signals.notify(jobs.job_key(state.job))
    return True


def _output_jobs(state: _State) -> dict[str, tuple[str, str]]:
    """Which output of which job each of the pipeline's is, as far as they were made."""
    return {
        name: (state.by_name[made.step].child_name, made.output)
        for name, made in state.row.outputs.items()
        if state.by_name[made.step].child_name
    }


def _error(failed: Sequence[StepRow]) -> JobError:
    first, *others = failed
    message = f"step `{first.name}` failed" + (f": {first.reason}" if first.reason else "")
    if others:
        message += f"; so did {_listed(step.name for step in others)}"
    return JobError(STEP_FAILED, message, _hint(first))


def _hint(step: StepRow) -> str:
    return f"see `yard job show -n {step.child_name}`" if step.child_name else ""


def _listed(names: Iterable[str]) -> str:
    listed = [f"`{name}`" for name in names]
    shown = ", ".join(listed[:5])
    return f"{shown} and {len(listed) - 5} more" if len(listed) > 5 else shown


def _counts(steps: Sequence[StepRow]) -> str:
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.outcome.value] = counts.get(step.outcome.value, 0) + 1
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _write_log(services: FileServices, state: _State) -> None:
    lines, state.log = state.log, []
    parent_logs.add(services, state.job, LOG, lines)
