"""Turn a job file into a job.

Owns: checking a job file against the workspace, pinning what it names, storing the job.
Leaves: parsing the file to spec/job_spec.py, resolving references to pinning.py.
Always: a job is stored with its first event, or not at all; the same name with the same body is
the same job; what is stored is pinned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from torchyard.base.documents import secret_variables
from torchyard.base.documents.checks import At
from torchyard.base.documents.faults import entries, together
from torchyard.base.errors import Conflict, DatabaseUnreachable, InvalidSpec, TorchyardError, moved
from torchyard.compute import actions as computes
from torchyard.compute.types import Compute
from torchyard.data import actions as data
from torchyard.data.types import Pinned
from torchyard.environments import assets as environments
from torchyard.environments.assembly import Environments
from torchyard.environments.types import EnvironmentSpec
from torchyard.executors.engines import Engines
from torchyard.executors.executor import EngineRefused, EngineUnreachable
from torchyard.jobs import actions
from torchyard.jobs.admission import choosing, gpus, queue, quota_checks, storage_use
from torchyard.jobs.files import outputs
from torchyard.jobs.messages import checks
from torchyard.jobs.records import names, progress, store
from torchyard.jobs.records.types import COMMAND, Job, NewJob, Status
from torchyard.jobs.requests import pinning
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.jobs.spec import (
    elastic,
    interception,
    job_spec,
    limit_properties,
    own_properties,
    rehearsal,
)
from torchyard.jobs.spec.inputs import LITERAL, Input, Output
from torchyard.jobs.spec.job_spec import JobSpec
from torchyard.shared import open_mpi
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import quotas, rights
from torchyard.workspaces.types import Identity, Workspace

_Result = TypeVar("_Result")
# How old what an engine says of its cluster may be.
_VIEW_S = 60.0


@dataclass(frozen=True)
class Checked:
    """A valid job file: its spec, its resolved environment, pinned inputs, and the properties to
    record.
    """

    spec: JobSpec
    environment: EnvironmentSpec
    paths: dict[str, str]
    notices: tuple[str, ...]
    rehearsed: bool = False
    properties: dict[str, str] = field(default_factory=dict)


def check(
    services: Services,
    workspace: str,
    document: Any,
    *,
    uploaded: bool = True,
    made: Collection[str] = (),
) -> Checked:
    """Check a job file as far as possible without running it.

    Args:
        uploaded: False accepts `local:` where a folder is yet to be uploaded.
        made: inputs that another job has yet to make, whose paths say nothing.

    Raises:
        InvalidSpec: what is wrong, and where; what else is, as its `others`.
    """
    job, wrong, fault = _read(document)
    record = workspaces.get(services.db, workspace)
    rehearsed = rehearsal.is_asked(job.properties, record)

    def told() -> None:
        if fault:
            raise fault

    def of(act: Callable[[], Any], *keys: str) -> Callable[[], Any]:
        """What is only looked at where these keys are right."""
        return (lambda: None) if wrong.intersection(keys) else act

    *_, environment, placed, recipients, pins, of_outputs = together(
        told,
        of(lambda: _limits_hold(job, record), "properties", "resources"),
        of(lambda: _code_exists(services, workspace, job, uploaded), "code"),
        of(lambda: _parent_exists(services, workspace, job), "parent_job_name", "name"),
        of(lambda: _environment(services.environments, workspace, job), "environment"),
        of(
            lambda: _placed(services, record, job, rehearsed),
            *("compute", "distribution", "properties", "resources"),
        ),
        of(lambda: checks.check(job.recipients, services.messages), "properties"),
        of(lambda: _pins(services, workspace, job, uploaded, made), "inputs"),
        of(lambda: _output_notices(services, workspace, job), "outputs"),
        body=document,
    )
    job, fitting = placed
    notices = (
        *rehearsal.notices(job.properties, record),
        *job.notices,
        *environment.notices,
        *limit_properties.notices(job.properties, record),
        *interception.notices(job.properties, environment),
        *fitting,
        *_mpi_notices(job, environment),
        *recipients,
        *(f"input `{name}`: {notice}" for name, pin in pins.items() for notice in pin.notices),
        *of_outputs,
    )
    paths = {name: pin.path for name, pin in pins.items()}
    properties = limit_properties.recorded(job.properties, record)
    return Checked(job, environment, paths, notices, rehearsed, properties)


def _read(document: Any) -> tuple[JobSpec, frozenset[str], InvalidSpec | None]:
    """The job, without the keys that are wrong; these keys; what is wrong with them."""
    try:
        return job_spec.read(document), frozenset(), None
    except InvalidSpec as error:
        return *job_spec.read_rest(document, error), error


def _limits_hold(job: JobSpec, workspace: Workspace) -> None:
    limit_properties.check(job.properties, workspace, job.most_nodes, job.distribution)


def _code_exists(services: Services, workspace: str, job: JobSpec, uploaded: bool) -> None:
    if job.code:
        blobs = services.blobs.of(workspace)
        _at(("code",), lambda: pinning.code_exists(blobs, job.code, uploaded))


def _placed(
    services: Services, workspace: Workspace, job: JobSpec, rehearsed: bool
) -> tuple[JobSpec, list[str]]:
    """The job with its cluster, and what there is to say about that."""
    job, chosen = _with_compute(services, workspace, job, rehearsed)
    return job, [*chosen, *_fits(services, workspace.name, job, rehearsed)]


def _pins(
    services: Services, workspace: str, job: JobSpec, uploaded: bool, made: Collection[str]
) -> dict[str, Pinned]:
    """What the inputs that are files stand for."""

    def pinned(job_input: Input, at: At) -> Pinned:
        pin = partial(pinning.pin, services, workspace, job.name, job_input, uploaded)
        return _at((*at, "path"), pin)

    files = {
        name: each for name, each in job.inputs.items() if each.type != LITERAL and name not in made
    }
    return entries(files, ("inputs",), pinned)


def _output_notices(services: Services, workspace: str, job: JobSpec) -> list[str]:
    def noticed(output: Output, at: At) -> str:
        check = partial(outputs.check, services, workspace, str(at[-1]), output)
        return _at((*at, "path"), check)

    notices = entries(job.outputs, ("outputs",), noticed)
    return [f"output `{name}`: {notice}" for name, notice in notices.items() if notice]


def _with_compute(
    services: Services, workspace: Workspace, job: JobSpec, rehearsed: bool
) -> tuple[JobSpec, list[str]]:
    """The job with a cluster where it leaves that open, and why it is that one.

    Raises:
        InvalidSpec: the workspace wants clusters to be named, or none can run the job.
    """
    if job.compute.lower() != choosing.AUTO:
        return job, []
    with services.db.read() as connection:
        if computes.find(connection, workspace.name, job.compute) is not None:
            return job, []
    if not workspace.auto_compute:
        raise InvalidSpec(
            f"`compute: auto` is not allowed in workspace `{workspace.name}`",
            "name a cluster (`yard compute list`), or ask an owner for `yard workspace update "
            f"-n {workspace.name} --set auto_compute=true`",
            at=("compute",),
        )
    choice = choosing.choose(services, workspace.name, job, rehearsed)
    return replace(job, compute=choice.compute), [
        f"`compute: auto` is `{choice.compute}`: {choice.reason}"
    ]


def create(
    services: Services,
    workspace: str,
    document: Mapping[str, Any],
    identity: Identity,
    also: Callable[[Connection, Job], None] = lambda connection, job: None,
) -> tuple[Job, bool]:
    """Store a job, which the scheduler then runs.

    Return the job, and whether it is new.

    Args:
        also: what else is written in the transaction that stores the job, if it is new.

    Raises:
        InvalidSpec: what is wrong, and where.
        Forbidden: the person was removed, or may not run jobs there any more.
        LimitExceeded: it exceeds a quota and can never run.
        Conflict: the name is taken by another job.
    """
    name = document.get("name")
    job = actions.find_by_name(services.db, workspace, name) if isinstance(name, str) else None
    if job is None:
        return create_new(services, workspace, document, identity, also)
    # Sent again: what it names may have changed since, the job has not.
    require_same(job, hash_of(body_of(document)), identity)
    return job, False


def create_new(
    services: Services,
    workspace: str,
    document: Mapping[str, Any],
    identity: Identity,
    also: Callable[[Connection, Job], None] = lambda connection, job: None,
    checked: Checked | None = None,
) -> tuple[Job, bool]:
    """Like `create`, for a name that was free when the caller checked.

    Args:
        checked: the document, where it was checked just before.
    """
    body = body_of(document)
    checked = checked or check(services, workspace, document)
    checked = allowed(services, workspace, checked, identity.user)
    name = checked.spec.name or names.generate()
    try:
        with services.db.write() as connection:
            rights.refuse_unable(connection, identity.user, workspace)
            inside = replace(services, db=services.db.joined(connection))
            refuse_deleted(inside, workspace, checked)
            new = _new_job(connection, services, workspace, name, checked, body, identity)
            job = store.add_job(connection, new)
            progress.created(connection, job, checked.notices)
            also(connection, job)
    except IntegrityError:
        job = actions.get(services, workspace, name)
        require_same(job, hash_of(body), identity)
        return job, False
    services.signals.notify(actions.job_key(job))
    services.wakeup.set()
    return job, True


def refuse_deleted(services: FileServices, workspace: str, checked: Checked) -> None:
    """Look again, in the transaction that stores the job, for what may have been deleted since.

    Raises:
        InvalidSpec: what the job names was deleted since it was checked.
    """
    ref = checked.environment.ref
    if ref:
        _at(("environment",), lambda: environments.refuse_deleted(services.db, workspace, ref))
    for name, path in checked.paths.items():
        refuse = partial(data.refuse_deleted, services.db, services.datastores, workspace, path)
        if checked.spec.inputs[name].mode != "direct":
            _at(("inputs", name, "path"), refuse)


def allowed(services: FileServices, workspace: str, checked: Checked, user: str) -> Checked:
    """Check quotas; add a notice if one limits the run time."""
    storage_use.measure(services, workspace)
    job = checked.spec
    with services.db.read() as connection:
        needs = quota_checks.needs(
            connection, workspace, user, job.compute, job.fewest_nodes, job.timeout_s
        )
        quota_checks.refuse_never(connection, needs)
        longest_s = quota_checks.longest_s(quotas.limits(connection, workspace), user)
    if not longest_s or job.timeout_s:
        return checked
    notice = (
        f"the job is stopped after {longest_s} s: quota `run_time_s` of workspace `{workspace}`"
    )
    return replace(checked, notices=(*checked.notices, notice))


def _new_job(
    connection: Connection,
    services: Services,
    workspace: str,
    name: str,
    checked: Checked,
    body: Mapping[str, Any],
    identity: Identity,
) -> NewJob:
    job = checked.spec
    properties, tags = rehearsal.recorded(checked.properties, job.tags, checked.rehearsed)
    experiment = actions.ensure_experiment(
        connection, services.clock, workspace, job.experiment_name
    )
    started_by = identity.subject.partition("/")[2] if identity.subject else ""
    # Tracking clients see masked values; the document keeps them, as attempts need them.
    masker = secret_variables.masker(body)
    return NewJob(
        workspace=workspace,
        name=name,
        type=COMMAND,
        experiment_id=experiment.id,
        status=Status.NOT_STARTED,
        owner=identity.user,
        display_name=masker.text(job.display_name) or name,
        document=pinned_document(body, checked),
        created_at=services.clock.now(),
        spec_hash=hash_of(body),
        environment=checked.environment,
        compute=job.compute,
        node_count=job.fewest_nodes,
        processes_per_node=job.process_count_per_instance,
        tags=masker.json(tags),
        properties=properties,
        parent=job.parent_job_name or started_by,
        description=masker.text(job.description),
        priority_rank=queue.priority_rank_of(job.job_tier, job.priority),
        limit_s=job.timeout_s or None,
        gpus=_gpus(connection, services, workspace, job, checked.rehearsed),
    )


def _gpus(
    connection: Connection,
    services: Services,
    workspace: str,
    job: JobSpec,
    rehearsed: bool,
) -> int:
    """How many devices the queue counts for each node of the job.

    Raises:
        Conflict: its compute was deleted, or is being deleted.
    """
    compute = computes.find(connection, workspace, job.compute)
    if compute is None or compute.deleting:
        # It was deleted since the check; the job would wait forever.
        raise _being_deleted(job.compute)
    processes = (job.fewest_nodes, job.process_count_per_instance)
    view = services.engines.last_view(compute.engine, compute.settings)
    # Machines may differ: what that many of them have.
    counts = sorted((node.gpus for node in view.nodes), reverse=True) if view else []
    engine_gpus = counts[job.fewest_nodes - 1] if job.fewest_nodes <= len(counts) else 0
    return gpus.per_node(
        services.devices, compute, *processes, job.properties, rehearsed, engine_gpus
    )


def body_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies the job's content: everything but its name."""
    job = own_properties.with_mapping(document)
    return {key: value for key, value in job.items() if key not in ("name", "$schema")}


def hash_of(body: Mapping[str, Any]) -> str:
    """By which two bodies of the same name are compared."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def pinned_document(body: Mapping[str, Any], checked: Checked) -> dict[str, Any]:
    """The document with its cluster, its environment's version and its inputs' paths pinned."""
    pinned = dict(body)
    if str(body.get("compute", "")).strip().lower().removeprefix("azureml:") == choosing.AUTO:
        pinned["compute"] = checked.spec.compute
    if checked.environment.ref:
        pinned["environment"] = f"azureml:{checked.environment.ref}"
    if checked.environment.job_variables:
        pinned["environment_variables"] = _with_job_variables(checked)
    if checked.paths:
        pinned["inputs"] = {
            name: {**value, "path": checked.paths[name]} if name in checked.paths else value
            for name, value in body["inputs"].items()
        }
    return pinned


def _with_job_variables(checked: Checked) -> dict[str, str]:
    """The job's variables, and those that belong to the name of its environment."""
    return {**dict(checked.environment.job_variables), **checked.spec.environment_variables}


def require_same(job: Job, spec_hash: str, identity: Identity) -> None:
    """
    Raises:
        Conflict: the job that has the name has another content, or is another person's, who may
            have taken the name of what is kept going for this one.
    """
    if job.owner != identity.user:
        raise Conflict(
            f"job `{job.name}` exists in workspace `{job.workspace}`, submitted by `{job.owner}`",
            "use another `name`, or none",
            code="job_exists",
            at=("name",),
        )
    if job.spec_hash != spec_hash:
        raise Conflict(
            f"job `{job.name}` exists in workspace `{job.workspace}` with another content",
            "use another `name`, or none",
            code="job_exists",
            at=("name",),
        )


def _environment(environments: Environments, workspace: str, job: JobSpec) -> EnvironmentSpec:
    """The job's environment, if it can run here."""

    def resolved() -> EnvironmentSpec:
        environment = environments.resolver.resolve(job.environment, workspace)
        environments.builds.refuse_impossible(environment)
        processes = job.most_nodes * job.process_count_per_instance
        if environment.image is not None and job.distribution == "mpi" and processes > 1:
            raise InvalidSpec(
                "a job of type mpi can't run in an image: Open MPI is the machine's own",
                "use `distribution: {type: pytorch}`, or an environment without an image",
                code="image_without_mpi",
            )
        return environment

    return _at(("environment",), resolved)


def _mpi_notices(job: JobSpec, environment: EnvironmentSpec) -> list[str]:
    """Whether Open MPI is missing, before the environment is built and nodes are held."""
    if job.distribution != "mpi" or job.most_nodes * job.process_count_per_instance == 1:
        return []
    program = open_mpi.missing()
    packages = (*environment.conda, *environment.packages)
    if not program or any("mpi" in line.lower() for line in packages):
        return []  # the environment may bring its own
    return [
        f"the server's machine has no `{program}`, which `distribution.type: mpi` needs: the job "
        f"fails with `mpi_missing` on such a node; {open_mpi.INSTALL}"
    ]


def _parent_exists(services: RecordServices, workspace: str, job: JobSpec) -> None:
    at = ("parent_job_name",)
    if not job.parent_job_name:
        return
    if job.parent_job_name == job.name:
        raise InvalidSpec(
            f"job `{job.name}` is its own parent", "use another job as the parent, or none",
            code="cyclic_reference", at=at,
        )  # fmt: skip
    _at(at, lambda: actions.get(services, workspace, job.parent_job_name))


def _fits(services: Services, workspace: str, job: JobSpec, rehearsed: bool) -> list[str]:
    """Check that the job fits its compute; return notices."""
    compute = _at(("compute",), lambda: computes.get(services.db, workspace, job.compute))
    if job.fewest_nodes > compute.max_instances:
        raise InvalidSpec(
            f"the job needs {job.fewest_nodes} nodes; compute `{compute.name}` has at most "
            f"{compute.max_instances}",
            f"raise the limit: `yard compute update -n {compute.name} --max-instances "
            f"{job.fewest_nodes}`, or use fewer nodes",
            code="too_many_nodes",
            at=_node_count_at(job),
        )
    if compute.deleting:
        raise _being_deleted(compute.name)
    _fits_engine(services.engines, compute, job)
    notices = gpus.check(
        services.devices,
        compute,
        job.fewest_nodes,
        job.process_count_per_instance,
        job.properties,
        rehearsed,
    )
    if job.elastic and job.elastic.max_nodes > compute.max_instances:
        notices = [*notices, f"compute `{compute.name}` has at most {compute.max_instances} of "
                   f"the {job.elastic.max_nodes} nodes of `{elastic.MAX_NODES}`"]  # fmt: skip
    return notices


def _node_count_at(job: JobSpec) -> tuple[str, str]:
    """Where a job file says how many nodes there must be."""
    return ("properties", elastic.MIN_NODES) if job.elastic else ("resources", "instance_count")


def _fits_engine(engines: Engines, compute: Compute, job: JobSpec) -> None:
    """Refuse what the cluster's engine could never run; one that does not answer refuses nothing.

    Raises:
        InvalidSpec: it will never have as many nodes.
    """
    if compute.is_local:
        return
    # An elastic job begins with the machines that are idle by this view.
    age_s = 0.0 if job.elastic else _VIEW_S
    try:
        view = engines.describe(compute.engine, compute.settings, age_s)
    except EngineUnreachable:
        return
    except EngineRefused as refusal:
        raise InvalidSpec(refusal.message, refusal.hint, at=("compute",)) from refusal
    if view.most_nodes and job.fewest_nodes > view.most_nodes:
        raise InvalidSpec(
            f"the job needs {job.fewest_nodes} nodes; `{compute.name}` can have {view.most_nodes} "
            f"at most, says {compute.engine}",
            "use fewer nodes, or another cluster: `yard compute list`",
            code="too_many_nodes",
            at=_node_count_at(job),
        )


def _being_deleted(compute: str) -> Conflict:
    return Conflict(
        f"compute `{compute}` is being deleted",
        "use another: `yard compute list`",
        at=("compute",),
    )


def _at(key_path: tuple[str | int, ...], act: Callable[[], _Result]) -> _Result:
    """Call `act`; report its errors as errors at that place of the document."""
    try:
        return act()
    except DatabaseUnreachable:
        raise  # not an error in the document
    except TorchyardError as error:
        size = len(key_path)
        raise moved(error, lambda at: at if at[:size] == key_path else (*key_path, *at)) from error
