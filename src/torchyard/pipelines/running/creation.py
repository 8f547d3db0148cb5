"""Turn a pipeline's file into a pipeline.

Owns: checking a pipeline against the workspace, finding its components, storing it with its steps.
Leaves: the graph to spec/, the checks of each step's job to jobs/requests/submission.py.
Always: a pipeline is stored with its steps and its first event, or not at all; what its steps name
is pinned; the same name with the same body is the same pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from torchyard.base import refs
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.documents import secret_variables
from torchyard.base.documents.checks import At
from torchyard.base.documents.faults import joined
from torchyard.base.errors import DatabaseUnreachable, InvalidSpec, TorchyardError, moved
from torchyard.components import actions as components
from torchyard.components import documents as component_documents
from torchyard.jobs import actions as jobs
from torchyard.jobs.records import names
from torchyard.jobs.records.types import Job, NewJob, Status
from torchyard.jobs.requests import parents, submission
from torchyard.jobs.services import Services
from torchyard.jobs.spec import own_properties
from torchyard.pipelines.records import step_store
from torchyard.pipelines.records.step_store import TYPE, PipelineRow, StepRow
from torchyard.pipelines.running import news
from torchyard.pipelines.spec import expansion, pipeline_file
from torchyard.pipelines.spec.expansion import Component
from torchyard.pipelines.spec.pipeline_file import PipelineSpec
from torchyard.pipelines.spec.plan import Plan, Step
from torchyard.workspaces.types import Identity

_LONGEST_NAME = 255
_UNNAMED = "component"
# Stands for a path that a step has yet to make.
_TO_BE_MADE = "local:"


@dataclass(frozen=True)
class CheckedPipeline:
    """A valid pipeline: its spec, its plan, each step's job file as it was checked."""

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
    spec = pipeline_file.read(document)
    plan = expansion.plan(spec, lambda written, at: _component(services.db, workspace, written, at))
    checked: list[submission.Checked] = []
    faults: list[InvalidSpec] = []
    for step in plan.steps:
        try:
            each = _check_step(services, workspace, spec, step, uploaded)
            checked.append(submission.allowed(services, workspace, each, user) if user else each)
        except InvalidSpec as error:
            faults.append(error)
    if faults:
        raise joined(faults, document, ())
    notices = dict.fromkeys(
        f"step `{step.name}`: {notice}"
        for step, each in zip(plan.steps, checked, strict=True)
        for notice in each.notices
    )
    return CheckedPipeline(spec, plan, tuple(checked), tuple(notices))


def _check_step(
    services: Services, workspace: str, spec: PipelineSpec, step: Step, uploaded: bool
) -> submission.Checked:
    """What its job will be, with stand-ins for what other steps make."""
    document = step_document(spec, step.name, step.document)
    made = {name: f"{_TO_BE_MADE}{taken.step}/{taken.output}" for name, taken in step.takes.items()}
    inputs = {name: taken.as_input(made[name]) for name, taken in step.takes.items()}
    document = {**document, "inputs": {**(document.get("inputs") or {}), **inputs}}
    try:
        checked = submission.check(
            services, workspace, document, uploaded=uploaded, made=frozenset(step.takes)
        )
    except DatabaseUnreachable:
        raise
    except TorchyardError as error:
        raise moved(error, lambda at: _place(step, at)) from error
    name = child_name("", step.name)
    if len(name) + len(spec.name) > _LONGEST_NAME:
        raise InvalidSpec(
            f"the job of step `{step.name}` would have a name of more than {_LONGEST_NAME} letters",
            "shorten the pipeline's `name`",
            at=("name",),
        )
    return checked


def _place(step: Step, at: At) -> At:
    """Where what stands there in a step's file stands in the pipeline's."""
    if not at:
        return step.at
    if at[0] in step.own_keys or at[0] in ("inputs", "outputs", "compute"):
        return (*step.at, *at)
    return (*step.component_at, *at)


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


def _component(db: Database, workspace: str, written: Any, at: At) -> Component:
    """What a step's `component` is.

    Raises:
        InvalidSpec: it is missing, or no component.
    """
    try:
        if isinstance(written, Mapping):
            request = component_documents.read({"name": _UNNAMED, **written})
            return Component(request.definition)
        ref = refs.parse(written)
        if ref.registry:
            raise InvalidSpec(
                f"`{written[:200]}` lies in the registry `{ref.registry}`, which is not reached "
                "from here",
                "write a component that does the same, and name its file",
                code="not_served",
            )
        version = ref.version or ref.label or components.LATEST
        found = components.get(db, workspace, ref.name, version)
    except DatabaseUnreachable:
        raise
    except TorchyardError as error:
        raise moved(error, lambda inner: (*at, *inner)) from error
    return Component(found.definition, f"{found.name}:{found.version}")


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
            for checked in pipeline.steps:
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
