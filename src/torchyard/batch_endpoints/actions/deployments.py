"""What can be done with deployments of a batch endpoint.

Owns: creating, changing, listing and deleting them.
Leaves: their file's grammar to spec/, pinning what it names to endpoints/actions/, the job that
scores to running/.
Always: a deployment is accepted when a job of it would be; the default one is not deleted alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base.errors import Conflict, InvalidSpec, TorchyardError
from torchyard.batch_endpoints.actions.endpoints import BATCH
from torchyard.batch_endpoints.records import store
from torchyard.batch_endpoints.records.types import BatchDeployment, BatchEndpoint
from torchyard.batch_endpoints.running import scoring_jobs
from torchyard.batch_endpoints.spec import deployment_spec
from torchyard.batch_endpoints.spec.deployment_spec import (
    BatchDeploymentFile,
    BatchDeploymentSpec,
)
from torchyard.endpoints.actions import deployed_models
from torchyard.endpoints.actions.deployed_models import Pinned
from torchyard.endpoints.actions.deployment_kind import DeploymentKind
from torchyard.endpoints.spec.deployment_spec import MLFLOW, ModelReference
from torchyard.jobs.requests import submission
from torchyard.jobs.services import Services
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

# What a deployment's file has in common with a job's.
_OF_JOBS = ("environment", "environment_variables", "compute", "resources", "tags", "properties")


class BatchDeployments(DeploymentKind[BatchEndpoint, BatchDeployment]):
    endpoints = BATCH
    rule = ownership.BATCH_DEPLOYMENT_CODE
    limit = 100
    full_hint = "delete those that nobody uses"
    outside = (
        "name", "endpoint_name", "settings", "splits_failed_batches", "description", "tags",
        "properties",
    )  # fmt: skip
    file = BatchDeploymentFile
    make = BatchDeployment
    rows = store.deployment_rows
    read = staticmethod(deployment_spec.read)

    def prepare(
        self,
        services: Services,
        endpoint: BatchEndpoint,
        document: Mapping[str, Any],
        spec: BatchDeploymentSpec,
        identity: Identity,
        takes_over: bool,
    ) -> Pinned:
        workspace = endpoint.workspace
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
            pinned = deployed_models.pin(
                services, workspace, document, spec, identity, spec.compute
            )
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
        return replace(pinned, notices=checked.notices)

    def added(
        self, connection: Connection, endpoint: BatchEndpoint, deployment: BatchDeployment
    ) -> None:
        """The first one becomes the default."""
        if not endpoint.default_deployment:
            store.change_endpoint(connection, endpoint, default_deployment=deployment.name)

    def what_runs(self, document: Mapping[str, Any]) -> BatchDeploymentSpec:
        """The number of nodes is not of it."""
        spec = deployment_spec.read(document)
        return replace(spec, resources=replace(spec.resources, instance_count=1))

    def remove(
        self,
        connection: Connection,
        endpoint: BatchEndpoint,
        deployment: BatchDeployment,
        now: datetime,
    ) -> BatchDeployment:
        """Its jobs stay, and those that run go on."""
        if endpoint.default_deployment == deployment.name:
            if len(self.rows.list_in(connection, endpoint.workspace, endpoint.name)) > 1:
                raise Conflict(
                    f"deployment `{deployment.name}` is the default of batch endpoint "
                    f"`{endpoint.name}`",
                    f"choose another one first: `yard batch-endpoint update -n {endpoint.name} "
                    "--set defaults.deployment_name=NAME`",
                    code="deployment_is_default",
                )
            store.change_endpoint(connection, endpoint, default_deployment="")
        self.rows.remove(connection, deployment)
        return deployment


BATCH_DEPLOYMENTS = BatchDeployments()
get = BATCH_DEPLOYMENTS.get


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
