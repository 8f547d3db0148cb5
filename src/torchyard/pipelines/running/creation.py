"""Turn a pipeline's file into a pipeline.

Owns: checking a pipeline against the workspace, storing it with its steps.
Leaves: the graph to spec/, its components to component_lookup.py, the checks of each step's job to
jobs/requests/submission.py.
Always: a pipeline is stored with its steps and its first event, or not at all; what its steps name
is pinned; the same name with the same body is the same pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from torchyard.base.clock import Clock
from torchyard.base.documents import secret_variables
from torchyard.base.documents.checks import At
from torchyard.base.documents.faults import MOST, joined, reaches
from torchyard.base.errors import DatabaseUnreachable, InvalidSpec, TorchyardError, moved
from torchyard.jobs import actions as jobs
from torchyard.jobs.records import names
from torchyard.jobs.records.types import Job, NewJob, Status
from torchyard.jobs.requests import parents, submission
from torchyard.jobs.services import Services
from torchyard.jobs.spec import own_properties
from torchyard.pipelines.records import step_store
from torchyard.pipelines.records.step_store import TYPE, PipelineRow, StepRow
from torchyard.pipelines.running import component_lookup, news, written_paths
from torchyard.pipelines.running.written_paths import Written
from torchyard.pipelines.spec import expansion, pipeline_file
from torchyard.pipelines.spec.pipeline_file import PipelineSpec
from torchyard.pipelines.spec.plan import Plan, Step
from torchyard.workspaces.types import Identity

_LONGEST_NAME = 255
# Stands for a path that a step has yet to make.
_TO_BE_MADE = "local:"


@dataclass(frozen=True)
class CheckedPipeline:
    """A valid pipeline: its spec, its plan, and of each step the job file as it was checked, or
    that of another step which differs from it in literals alone.
    """

    spec: PipelineSpec
    plan: Plan
    steps: tuple[submission.Checked, ...]
    notices: tuple[str, ...]


def check(
    services: Services, workspace: str, document: Any, uploaded: bool, user: str = ""
) -> CheckedPipeline:
    """
    Args:
        user: whose quotas count; empty to leave them out.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    faults: list[TorchyardError] = []
    broken: list[str] = []
    try:
        spec = pipeline_file.read(document)
    except InvalidSpec as error:
        spec, broken = pipeline_file.read_rest(document, error)
        faults.append(error)
    resolve = component_lookup.in_workspace(services.db, workspace)
    found = expansion.expand(spec, resolve, broken)
    faults += found.faults.found
    written = written_paths.of_steps(workspace, found.steps)
    steps = _StepChecks(services, workspace, spec, uploaded, user, written)
    checked: dict[str, submission.Checked] = {}
    for step in found.steps:
        if len(faults) > MOST:
            break
        try:
            checked[step.name] = steps.check(step)
        except InvalidSpec as error:
            faults.append(moved(error, partial(_place, document, step)))
    try:
        plan = found.plan()
    except InvalidSpec as error:
        faults.append(error)
    if faults:
        raise joined([moved(each, partial(_written_at, document)) for each in faults], document, ())
    notices = dict.fromkeys(
        (
            *(f"output `{name}` is made by no step" for name in found.unmade),
            *(f"step `{step}`: {text}" for step, each in checked.items() for text in each.notices),
        )
    )
    return CheckedPipeline(
        spec, plan, tuple(checked[step.name] for step in plan.steps), tuple(notices)
    )


@dataclass
class _StepChecks:
    """Checks steps, those that are alike once: `alike` has what each came to, `quotas` what there
    is to say of one that asks for as much. What lies where others write is checked when the step
    starts.
    """

    services: Services
    workspace: str
    spec: PipelineSpec
    uploaded: bool
    user: str
    written: Written
    alike: dict[str, submission.Checked] = field(default_factory=dict)
    quotas: dict[tuple[str, int, float], tuple[str, ...]] = field(default_factory=dict)

    def check(self, step: Step) -> submission.Checked:
        """What its job will be, with stand-ins for what other steps make.

        Raises:
            InvalidSpec: at a place of the step's job file.
        """
        name = child_name("", step.name)
        if len(name) + len(self.spec.name) > _LONGEST_NAME:
            raise InvalidSpec(
                f"the job of step `{step.name}` would have a name of more than {_LONGEST_NAME} "
                "letters",
                "shorten the pipeline's `name`",
                at=("name",),
            )
        key = _fingerprint(step)
        if key not in self.alike:
            self.alike[key] = self._allowed(self._checked(step))
        return self.alike[key]

    def _checked(self, step: Step) -> submission.Checked:
        document = step_document(self.spec, step.name, step.document)
        inputs = {name: taken.as_input(_TO_BE_MADE) for name, taken in step.takes.items()}
        document = {**document, "inputs": {**(document.get("inputs") or {}), **inputs}}
        try:
            return submission.check(
                self.services,
                self.workspace,
                document,
                uploaded=self.uploaded,
                made={*step.takes, *written_paths.read_by(self.workspace, step, self.written)},
            )
        except DatabaseUnreachable:
            raise
        except TorchyardError as error:
            raise moved(error, lambda at: at) from error

    def _allowed(self, checked: submission.Checked) -> submission.Checked:
        if not self.user:
            return checked
        job = checked.spec
        need = (job.compute, job.fewest_nodes, job.timeout_s)
        if need not in self.quotas:
            allowed = submission.allowed(self.services, self.workspace, checked, self.user)
            self.quotas[need] = allowed.notices[len(checked.notices) :]
        return replace(checked, notices=(*checked.notices, *self.quotas[need]))


def _fingerprint(step: Step) -> str:
    """The same for two steps of which one is right if the other is: what literals say makes no
    difference, nor who makes what they take.
    """
    inputs = {
        name: type(value).__name__ if _is_plain(value) else value
        for name, value in (step.document.get("inputs") or {}).items()
    }
    taken = {name: each.as_input("") for name, each in step.takes.items()}
    return component_lookup.key_of({**step.document, "inputs": {**inputs, **taken}}, ())


def _is_plain(value: Any) -> bool:
    """Whether it is a literal that names nothing and holds no expression."""
    if isinstance(value, str):
        return not any(mark in value for mark in ("$", ":", "{", "/"))
    return isinstance(value, int | float | bool)


def _place(document: Any, step: Step, at: At) -> At:
    """Where what stands there in a step's file stands in the pipeline's."""
    if at[:1] == ("name",):
        return at
    own = str(at[1]).split(".") if len(at) > 1 and at[0] == "properties" else []
    for size in (3, 2, 1):
        if at[:size] in step.places:
            return (*step.places[at[:size]], *at[size:])
    if reaches(document, own):
        return tuple(own)
    return (*step.at, *at)


def _written_at(document: Any, at: At) -> At:
    """The place, or that of the name of a component which holds it."""
    below = document
    for size, key in enumerate(at):
        if isinstance(below, str):
            return at[:size]
        below = below.get(key) if isinstance(below, Mapping) else None
    return at


def step_document(spec: PipelineSpec, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The job file of a step with what the pipeline gives each."""
    own = {
        key: value
        for key, value in spec.properties.items()
        if key.startswith(own_properties.PREFIX)
    }
    properties = {**own, **(document.get("properties") or {})}
    return {
        "display_name": name,
        **document,
        "experiment_name": spec.experiment_name,
        **({"properties": properties} if properties else {}),
    }


def child_name(pipeline: str, step: str) -> str:
    return f"{pipeline}_{step.replace('.', '-')}"


def create(
    services: Services,
    workspace: str,
    document: Mapping[str, Any],
    identity: Identity,
    kept: Mapping[str, StepRow] = MappingProxyType({}),
) -> tuple[Job, bool]:
    """Store a pipeline; the job, and whether it is new.

    Args:
        kept: steps that completed in another pipeline, by their names, which don't run again.

    Raises:
        InvalidSpec: what is wrong, and where.
        LimitExceeded: a step exceeds a quota and can never run.
        Conflict: the name is taken by another job.
    """
    body = submission.body_of(_with_properties(document))
    name = document.get("name")
    job = jobs.find_by_name(services.db, workspace, name) if isinstance(name, str) else None
    if job is not None:
        # Sent again: what it names may have changed since, the pipeline has not.
        submission.require_same(job, submission.hash_of(body), identity)
        return job, False
    pipeline = check(services, workspace, document, True, identity.user)
    name = pipeline.spec.name or names.generate()
    documents = [
        submission.pinned_document(step_document(pipeline.spec, step.name, step.document), checked)
        for step, checked in zip(pipeline.plan.steps, pipeline.steps, strict=True)
    ]
    rows = [
        replace(
            kept.get(step.name, StepRow(number, step.name)),
            number=number,
            takes=step.takes,
            component=step.component,
            is_deterministic=step.is_deterministic,
        )
        for number, step in enumerate(pipeline.plan.steps)
    ]
    try:
        with services.db.write() as connection:
            inside = replace(services, db=services.db.joined(connection))
            # Steps that are alike share one.
            for checked in {id(each): each for each in pipeline.steps}.values():
                submission.refuse_deleted(inside, workspace, checked)
            new = _new_job(connection, services.clock, workspace, name, pipeline, body, identity)
            job = parents.add(connection, new, pipeline.notices)
            row = PipelineRow(job.id, pipeline.plan.outputs)
            step_store.add(connection, row, rows, documents)
    except IntegrityError:
        job = jobs.get(services, workspace, name)
        submission.require_same(job, submission.hash_of(body), identity)
        return job, False
    services.signals.notify(jobs.job_key(job))
    services.signals.notify(news.PIPELINES)
    return job, True


def _with_properties(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with each mapping `torchyard:` as properties, those of steps, too."""
    body = own_properties.with_mapping(document)
    if isinstance(component := body.get("component"), Mapping):
        body["component"] = _with_properties(component)
    if isinstance(nodes := body.get("jobs"), Mapping):
        body["jobs"] = {
            name: _with_properties(node) if isinstance(node, Mapping) else node
            for name, node in nodes.items()
        }
    return body


def _new_job(
    connection: Connection,
    clock: Clock,
    workspace: str,
    name: str,
    pipeline: CheckedPipeline,
    body: Mapping[str, Any],
    identity: Identity,
) -> NewJob:
    spec = pipeline.spec
    experiment = jobs.ensure_experiment(connection, clock, workspace, spec.experiment_name)
    masker = secret_variables.masker(body)
    return NewJob(
        workspace=workspace,
        name=name,
        type=TYPE,
        experiment_id=experiment.id,
        status=Status.NOT_STARTED,
        owner=identity.user,
        display_name=masker.text(spec.display_name) or name,
        document={**body, "type": TYPE},
        created_at=clock.now(),
        spec_hash=submission.hash_of(body),
        compute=spec.settings.compute.removeprefix("azureml:"),
        tags=masker.json(dict(spec.tags)),
        properties=masker.json(dict(spec.properties)),
        description=masker.text(spec.description),
        parent=spec.parent_job_name,
    )
