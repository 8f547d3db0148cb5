"""What can be done with deployments of a batch endpoint.

Owns: creating, changing, listing and deleting them.
Leaves: their file's grammar to spec/, pinning what it names to endpoints/actions/, the job that
scores to running/.
Always: a deployment is accepted when a job of it would be; the default one is not deleted alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.documents import models
from torchyard.base.errors import (
    Conflict,
    InvalidSpec,
    NotFound,
    TorchyardError,
    did_you_mean,
)
from torchyard.batch_endpoints.actions import endpoints
from torchyard.batch_endpoints.records import store
from torchyard.batch_endpoints.records.types import BatchDeployment
from torchyard.batch_endpoints.running import scoring_jobs
from torchyard.batch_endpoints.spec import deployment_spec
from torchyard.batch_endpoints.spec.deployment_spec import (
    BatchDeploymentFile,
    BatchDeploymentSpec,
)
from torchyard.endpoints.actions import deployed_models
from torchyard.endpoints.spec.changes import changed, changes_what_runs
from torchyard.endpoints.spec.deployment_spec import MLFLOW, ModelReference
from torchyard.jobs.requests import submission
from torchyard.jobs.services import Services
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

_MOST_DEPLOYMENTS = 100
# What a deployment's file has in common with a job's.
_OF_JOBS = ("environment", "environment_variables", "compute", "resources", "tags", "properties")
_LABELS_AND_NUMBERS = (
    "name", "endpoint_name", "settings", "splits_failed_batches", "description", "tags",
    "properties",
)  # fmt: skip


@dataclass(frozen=True)
class Accepted:
    """A deployment as it is kept; `notices` say what has no effect, or another than in Azure."""

    deployment: BatchDeployment
    is_new: bool
    notices: tuple[str, ...]


def create(
    services: Services,
    workspace: str,
    endpoint_name: str,
    document: Mapping[str, Any],
    identity: Identity,
) -> Accepted:
    """Create a deployment, or replace the file of one; the first one becomes the default.

    Raises:
        InvalidSpec: what is wrong, and where.
        NotFound: the endpoint does not exist.
        Forbidden: the endpoint is somebody else's, or the deployment is and what it runs changes.
    """
    document, takes_over = ownership.without_take_over(document)
    spec = deployment_spec.read(document)
    endpoint = endpoints.get(services.db, workspace, endpoint_name)
    if spec.endpoint_name.lower() != endpoint.name.lower():
        raise InvalidSpec(
            f"the document's endpoint is `{spec.endpoint_name}`, but the URL says "
            f"`{endpoint.name}`",
            "leave `endpoint_name` out of the document",
            at=("endpoint_name",),
        )
    endpoints.refuse_foreign(services.db, endpoint, identity)
    stored_document, notices = _pinned(services, workspace, document, spec, identity)
    now = services.clock.now()
    with services.db.write() as connection:
        endpoint = endpoints.find(connection, workspace, endpoint.name)
        old = store.deployment_named(connection, endpoint, spec.name)
        if old is not None:
            values: dict[str, Any] = {
                "document": {**stored_document, "name": old.name},
                "owner": _owner_after(connection, old, stored_document, identity, takes_over),
                "changed_at": now,
            }
            store.change_deployment(connection, old, **values)
            return Accepted(replace(old, **values), False, notices)
        if len(store.deployments_in(connection, endpoint)) >= _MOST_DEPLOYMENTS:
            raise Conflict(
                f"batch endpoint `{endpoint.name}` has {_MOST_DEPLOYMENTS} deployments",
                "delete those that nobody uses",
            )
        deployment = BatchDeployment(
            workspace, endpoint.name, spec.name, identity.user, stored_document, now, now
        )
        store.add_deployment(connection, deployment)
        if not endpoint.default_deployment:
            store.change_endpoint(connection, endpoint, default_deployment=deployment.name)
    return Accepted(deployment, True, notices)


def update(
    services: Services,
    workspace: str,
    endpoint_name: str,
    name: str,
    changes: Mapping[str, Any],
    identity: Identity,
) -> Accepted:
    """Change single keys of a deployment; a mapping is merged into the one that is there.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    old = get(services.db, workspace, endpoint_name, name)
    document = changed(old.document, changes, list(models.keys(BatchDeploymentFile)))
    document |= {"name": old.name, "endpoint_name": old.endpoint}
    return create(services, workspace, endpoint_name, document, identity)


def get(db: Database, workspace: str, endpoint_name: str, name: str) -> BatchDeployment:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    endpoint = endpoints.get(db, workspace, endpoint_name)
    with db.read() as connection:
        deployment = store.deployment_named(connection, endpoint, name)
        if deployment is not None:
            return deployment
        there = store.deployments_in(connection, endpoint)
    raise NotFound(
        f"batch endpoint `{endpoint.name}` has no deployment `{name[:80]}`",
        did_you_mean(
            name,
            [each.name for each in there],
            f"list them with `yard batch-deployment list -e {endpoint.name}`",
        ),
        code="deployment_not_found",
    )


def list_in(db: Database, workspace: str, endpoint_name: str) -> list[BatchDeployment]:
    endpoint = endpoints.get(db, workspace, endpoint_name)
    with db.read() as connection:
        return store.deployments_in(connection, endpoint)


def delete(
    db: Database, workspace: str, endpoint_name: str, name: str, identity: Identity
) -> BatchDeployment:
    """Delete a deployment; its jobs stay, and those that run go on.

    Raises:
        Conflict: it is the default, and the endpoint has others.
        Forbidden: the endpoint is somebody else's.
    """
    deployment = get(db, workspace, endpoint_name, name)
    with db.write() as connection:
        endpoint = endpoints.find(connection, workspace, endpoint_name)
        endpoints.refuse_foreign(db, endpoint, identity)
        if endpoint.default_deployment == deployment.name:
            if len(store.deployments_in(connection, endpoint)) > 1:
                raise Conflict(
                    f"deployment `{deployment.name}` is the default of batch endpoint "
                    f"`{endpoint.name}`",
                    f"choose another one first: `yard batch-endpoint update -n {endpoint.name} "
                    "--set defaults.deployment_name=NAME`",
                    code="deployment_is_default",
                )
            store.change_endpoint(connection, endpoint, default_deployment="")
        store.remove_deployment(connection, deployment)
    return deployment


def _owner_after(
    connection: Connection,
    old: BatchDeployment,
    document: Mapping[str, Any],
    identity: Identity,
    takes_over: bool,
) -> str:
    """
    Raises:
        Forbidden: it is another's, what its jobs run changes, and nobody said `take_over`.
    """
    before, after = (
        replace(spec, resources=replace(spec.resources, instance_count=1))
        for spec in (deployment_spec.read(old.document), deployment_spec.read(document))
    )
    return ownership.owner_after(
        connection,
        ownership.BATCH_DEPLOYMENT_CODE,
        old.workspace,
        identity.user,
        old.owner,
        f"deployment `{old.name}`",
        is_asked=takes_over,
        is_needed=changes_what_runs(before, after, _LABELS_AND_NUMBERS),
    )


def _pinned(
    services: Services,
    workspace: str,
    document: Mapping[str, Any],
    spec: BatchDeploymentSpec,
    identity: Identity,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The file as it is kept, and notices."""
    if spec.code is None and not _may_be_mlflow(spec.model):
        raise _without_code()
    document = dict(document)
    if spec.environment_variables:
        # Those of `settings` as well: one place, which is masked wherever it is shown.
        document["environment_variables"] = dict(spec.environment_variables)
        settings = document.get("settings") or {}
        document["settings"] = {
            key: value for key, value in settings.items() if key != "environment_variables"
        }
    try:
        pinned = deployed_models.pin(services, workspace, document, spec.as_online, identity)
    except TorchyardError as error:
        if tuple(error.at) == ("torchyard", "cluster"):
            error.at = ("compute",)
        raise
    stored_spec = deployment_spec.read(pinned.document)
    if stored_spec.code is None and not _is_mlflow(stored_spec.model):
        raise _without_code()
    job = scoring_jobs.template(services.blobs.of(workspace), stored_spec)
    try:
        checked = submission.check(services, workspace, job)
    except TorchyardError as error:
        if error.at and error.at[0] not in _OF_JOBS:
            error.at = ()
        raise
    return pinned.document, checked.notices


def _may_be_mlflow(model: ModelReference | None) -> bool:
    """Whether it is one, or a reference to one that is yet to be looked up."""
    return model is not None and (model.type == MLFLOW or model.path.startswith("azureml:"))


def _is_mlflow(model: ModelReference | None) -> bool:
    return model is not None and model.type == MLFLOW


def _without_code() -> InvalidSpec:
    return InvalidSpec(
        "the deployment has no `code_configuration`",
        "name a scoring script: `code_configuration: {code: ./src, scoring_script: score.py}`; "
        "models of type mlflow_model need none",
    )
