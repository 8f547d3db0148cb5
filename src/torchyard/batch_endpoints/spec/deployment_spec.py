"""The batch deployment's file: from a mapping to a `BatchDeploymentSpec`.

Owns: `BatchDeploymentSpec`; what stands at the top of a deployment's file.
Leaves: how it scores to settings.py; its model, code and environment to
endpoints/spec/deployment_spec.py, since they are those of an online deployment; whether they exist
to actions.
Always: a `BatchDeploymentSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import mapping, text, texts
from torchyard.batch_endpoints.spec import keys, settings
from torchyard.batch_endpoints.spec.settings import BatchSettings, Resources
from torchyard.endpoints.spec import deployment_spec as online
from torchyard.endpoints.spec.deployment_spec import CodeConfiguration, ModelReference
from torchyard.endpoints.spec.keys import check
from torchyard.endpoints.spec.settings import OwnSettings, word

_SHARED = ("name", "endpoint_name", "model", "code_configuration", "environment")
_SETTINGS, _RESOURCES = BatchSettings(), Resources()


@dataclass(frozen=True)
class BatchDeploymentSpec:
    """`environment` is None where the model brings it; `compute` is empty for `local`."""

    name: str
    endpoint_name: str
    model: ModelReference | None = None
    code: CodeConfiguration | None = None
    environment: str | Mapping[str, Any] | None = None
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    compute: str = ""
    resources: Resources = _RESOURCES
    settings: BatchSettings = _SETTINGS
    splits_failed_batches: bool = True
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def as_online(self) -> online.DeploymentSpec:
        """What an online deployment would name: model, code, environment and cluster."""
        return online.DeploymentSpec(
            name=self.name,
            endpoint_name=self.endpoint_name,
            model=self.model,
            code=self.code,
            environment=self.environment,
            environment_variables=self.environment_variables,
            own_settings=OwnSettings(cluster=self.compute),
        )


@faults.all_at_once
def read(document: Any) -> BatchDeploymentSpec:
    """Check a deployment file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    body = mapping(document, "the deployment")
    if word(body, "type", (), ("model", "pipeline"), "model") == "pipeline":
        raise InvalidSpec(
            "`type: pipeline` is not served: a batch endpoint deploys models",
            "submit the pipeline's steps as jobs, or deploy the model of its last step",
            code="not_served",
            at=("type",),
        )
    body = check(body, keys.DEPLOYMENT, (), "the deployment")
    expressions.refuse(body)
    shared = online.read({key: body[key] for key in _SHARED if key in body})
    return BatchDeploymentSpec(
        name=shared.name,
        endpoint_name=shared.endpoint_name,
        model=shared.model,
        code=shared.code,
        environment=shared.environment,
        environment_variables=settings.variables(body),
        compute=text(body, "compute").removeprefix("azureml:"),
        resources=settings.resources(body),
        settings=settings.batch_settings(body),
        splits_failed_batches=settings.splits_failed_batches(body),
        description=text(body, "description"),
        tags=texts(body, "tags"),
        properties=texts(body, "properties"),
    )
