"""What can be done with compute instances.

Owns: creating, changing, starting, stopping and deleting them; the job that runs one.
Leaves: a document's grammar to documents.py, idle ones and schedules to keeper.py, the job itself
to jobs/.
Always: an instance is run by a job of its owner's; its files are in the workspace's datastore
between two starts; only its owner and owners of the workspace start, stop or change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.errors import (
    Conflict,
    NotFound,
    TorchyardError,
    did_you_mean,
)
from torchyard.compute import actions as computes
from torchyard.instances import documents, store
from torchyard.instances.types import (
    FAILED,
    RUNNING,
    SERVICE,
    STARTING,
    STOPPED,
    STOPPING,
    Instance,
    InstanceSpec,
)
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import submission
from torchyard.jobs.services import Services
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity, TokenKind

RESTARTING = "it is being restarted"
_EXPERIMENT = "compute-instances"
_FILES = "azureml://datastores/workspaceblobstore/paths/instances/{name}/{number}/"
_ENVIRONMENT: dict[str, Any] = {
    "conda_file": {
        "name": "compute-instance",
        "dependencies": [
            "python=3.11",
            "pip",
            {
                "pip": [
                    "jupyterlab>=4.2,<5",
                    "ipykernel>=6.29",
                    "azure-ai-ml>=1.20",
                    "azure-identity",
                    "mlflow-skinny>=2.15,<3",
                    "azureml-mlflow",
                    "pandas",
                    "matplotlib",
                ]
            },
        ],
    }
}
# `files` is what the person sees: what was there at the last stop, and a first notebook.
_COMMAND = """\
set -e
if [ -n "$AZUREML_CR_INSTANCE_BEFORE" ] && [ -d "$AZUREML_CR_INSTANCE_BEFORE" ]
then cp -a "$AZUREML_CR_INSTANCE_BEFORE"/. "$FILES"/
fi
[ -e "$FILES/welcome.md" ] || cat > "$FILES/welcome.md" <<'END'
# Your compute instance

Notebooks here run in Python with the SDKs of Azure Machine Learning and MLflow, which reach this
workspace's server. What is in this folder is kept when the instance stops; nothing else is.

    from azure.ai.ml import MLClient
    import mlflow
END
ln -sfn "$FILES" files
trap 'exit 0' TERM
while :; do sleep 3600 & wait $!; done
"""


def create(
    services: Services, workspace: str, document: Mapping[str, Any], identity: Identity
) -> Instance:
    """Create one and start it; or change one, from its next start on.

    Raises:
        InvalidSpec: what is wrong, and where.
        Conflict: a cluster has the name.
        Forbidden: it is somebody else's.
    """
    document, takes_over = ownership.without_take_over(document)
    spec = documents.read(document)
    now = services.clock.now()
    if any(
        compute.name.lower() == spec.name.lower()
        for compute, _ in _clusters(services.db, workspace)
    ):
        raise Conflict(f"`{spec.name}` is a cluster", "choose another name", at=["name"])
    _check_runnable(services, workspace, spec)
    with services.db.write() as connection:
        before = store.get(connection, workspace, spec.name)
        if before is not None:
            refuse_foreign(services.db, before, identity.user)
            owner = _owner_after(connection, before, spec, identity.user, takes_over)
            values: dict[str, Any] = {"document": dict(document), "owner": owner}
            store.change(connection, before, **values)
            return replace(before, **values)
        instance = Instance(
            workspace, spec.name, identity.user, dict(document), STOPPED, "", "", 0, now, now, now
        )
        store.add(connection, instance)
    return start(services, workspace, spec.name, identity.user)


def get(db: Database, workspace: str, name: str) -> Instance:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with db.read() as connection:
        instance = store.get(connection, workspace, name)
        if instance is not None:
            return instance
        names = [instance.name for instance in store.list_in(connection, workspace)]
    raise NotFound(
        f"compute instance `{name}` does not exist in workspace `{workspace}`",
        did_you_mean(name, names, "list them with `yard compute list`"),
        code="compute_not_found",
    )


def find(db: Database, workspace: str, name: str) -> Instance | None:
    with db.read() as connection:
        return store.get(connection, workspace, name)


def list_in(db: Database, workspace: str) -> list[Instance]:
    with db.read() as connection:
        return store.list_in(connection, workspace)


def start(services: Services, workspace: str, name: str, user: str) -> Instance:
    """Start one; one that runs stays as it is.

    Raises:
        Conflict: it is still stopping.
        Forbidden: it is somebody else's.
    """
    instance = get(services.db, workspace, name)
    refuse_foreign(services.db, instance, user)
    job = job_of(services.db, instance)
    if job is not None and not job.status.ended:
        if instance.state == RUNNING:
            return instance
        raise Conflict(
            f"compute instance `{name}` is stopping", "try again in some seconds",
            code="instance_stopping",
        )  # fmt: skip
    number = instance.starts + 1
    document = _job_document(services, instance, documents.read_stored(instance.document), number)
    owner = Identity(instance.owner, TokenKind.PERSON)
    made, _ = submission.create(services, workspace, document, owner)
    now = services.clock.now()
    values: dict[str, Any] = {
        "state": RUNNING, "message": "", "job": made.name, "starts": number,
        "active_at": now, "scheduled_at": now,
    }  # fmt: skip
    with services.db.write() as connection:
        store.change(connection, instance, **values)
    return replace(instance, **values)


def stop(services: Services, workspace: str, name: str, user: str, message: str = "") -> Instance:
    """Stop one; its files are stored, and its node is free.

    Raises:
        Forbidden: it is somebody else's.
    """
    instance = get(services.db, workspace, name)
    refuse_foreign(services.db, instance, user)
    job = job_of(services.db, instance)
    if job is not None and not job.status.ended:
        jobs.cancel(services, workspace, job.name)
    with services.db.write() as connection:
        store.change(
            connection, instance, state=STOPPED, message=message, scheduled_at=services.clock.now()
        )
    return replace(instance, state=STOPPED, message=message)


def restart(services: Services, workspace: str, name: str, user: str) -> Instance:
    """Stop one; the keeper starts it again once it has stopped.

    Raises:
        Forbidden: it is somebody else's.
    """
    return stop(services, workspace, name, user, RESTARTING)


def delete(services: Services, workspace: str, name: str, user: str) -> None:
    """Stop and remove one; what it stored stays in the datastore.

    Raises:
        Forbidden: it is somebody else's.
    """
    instance = stop(services, workspace, name, user)
    with services.db.write() as connection:
        store.remove(connection, instance)


def state_of(db: Database, instance: Instance) -> tuple[str, str]:
    """Azure ML's word for its state, and why it is so."""
    job = job_of(db, instance)
    if job is None:
        return STOPPED, instance.message
    if instance.state == STOPPED:
        return (STOPPED if job.status.ended else STOPPING), instance.message
    if job.status is Status.FAILED:
        return FAILED, job.error.message if job.error else "its job failed"
    if job.status.ended:
        return STOPPED, "its job ended"
    return (RUNNING if job.status is Status.RUNNING else STARTING), job.status.value


def refuse_foreign(db: Database, instance: Instance, user: str) -> None:
    """
    Raises:
        Forbidden: it is somebody else's, and the person does not own the workspace.
    """
    with db.read() as connection:
        ownership.refuse(
            connection,
            ownership.INSTANCE,
            instance.workspace,
            user,
            instance.owner,
            _subject(instance),
        )


def _subject(instance: Instance) -> str:
    return f"compute instance `{instance.name}`"


def _owner_after(
    connection: Connection, before: Instance, spec: InstanceSpec, user: str, takes_over: bool
) -> str:
    """
    Raises:
        Forbidden: it is another's, what it runs changes, and nobody said `take_over`.
    """
    old = documents.read_stored(before.document)
    return ownership.owner_after(
        connection,
        ownership.INSTANCE_CODE,
        before.workspace,
        user,
        before.owner,
        _subject(before),
        is_asked=takes_over,
        is_needed=(old.environment, old.cluster) != (spec.environment, spec.cluster),
    )


def to_json(db: Database, instance: Instance) -> dict[str, Any]:
    """As the native API shows it, in the words of its document."""
    spec = documents.read_stored(instance.document)
    state, message = state_of(db, instance)
    return {
        **{key: value for key, value in instance.document.items() if key != "$schema"},
        "name": instance.name,
        "type": "computeinstance",
        "size": spec.size,
        "state": state,
        "message": message,
        "owner": instance.owner,
        "job": instance.job,
        "created_at": instance.created_at.isoformat(),
        "last_activity": instance.active_at.isoformat(),
        "provisioning_state": "Failed" if state == FAILED else "Succeeded",
        "notices": [],
    }


def _clusters(db: Database, workspace: str) -> Any:
    return computes.list_in(db, workspace)


def _check_runnable(services: Services, workspace: str, spec: InstanceSpec) -> None:
    submission.check(services, workspace, _document(spec, 1, None))


def _job_document(
    services: Services, instance: Instance, spec: InstanceSpec, number: int
) -> dict[str, Any]:
    before = None
    if number > 1:
        before = _FILES.format(name=instance.name, number=number - 1)
        document = _document(spec, number, before)
        try:
            submission.check(services, instance.workspace, document)
            return document
        except TorchyardError:
            before = None  # nothing was stored at the last stop
    return _document(spec, number, before)


def _document(spec: InstanceSpec, number: int, before: str | None) -> dict[str, Any]:
    export = "export AZUREML_CR_INSTANCE_BEFORE=${{inputs.before}}\n" if before else ""
    document: dict[str, Any] = {
        "name": f"instance-{spec.name}-{number}",
        "display_name": spec.name,
        "experiment_name": _EXPERIMENT,
        "command": f"export FILES=${{{{outputs.files}}}}\n{export}{_COMMAND}",
        "environment": spec.environment or _ENVIRONMENT,
        "outputs": {
            "files": {
                "type": "uri_folder",
                "path": _FILES.format(name=spec.name, number=number),
            }
        },
        "services": {SERVICE: {"type": "jupyter_lab", "log_dir": "files"}},
    }
    if before:
        document["inputs"] = {"before": {"type": "uri_folder", "path": before, "mode": "download"}}
    if spec.cluster:
        document["compute"] = spec.cluster
    return document


def job_of(db: Database, instance: Instance) -> Job | None:
    """The job that runs it, or ran it last."""
    return jobs.find_by_name(db, instance.workspace, instance.job) if instance.job else None
