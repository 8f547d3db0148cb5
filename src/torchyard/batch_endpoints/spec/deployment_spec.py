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

from torchyard.base.documents.checks import Refused, Text, Word
from torchyard.base.documents.models import declared, keys, refused, rule
from torchyard.batch_endpoints.spec.settings import (
    BatchSettings,
    InnerSettings,
    Resources,
    ResourcesFile,
    Settings,
    joined,
    refuse_twice,
)
from torchyard.batch_endpoints.spec.settings import OwnSettings as BatchOwnSettings
from torchyard.endpoints.spec import deployment_spec as online
from torchyard.endpoints.spec.deployment_spec import CodeConfiguration, ModelReference
from torchyard.endpoints.spec.settings import OwnSettings

_SETTINGS, _RESOURCES = BatchSettings(), Resources()
_PIPELINES = Refused(
    "pipelines are not deployed: submit a job, or deploy the model of its last step"
)
_PIPELINE = (
    "`type: pipeline` is not served: a batch endpoint deploys models",
    "submit the pipeline's steps as jobs, or deploy the model of its last step",
)


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


class BatchDeploymentFile(Settings, online.DeploymentFile):
    type: str = declared(
        "model",
        "`model` (the default); `pipeline` is refused by name",
        Word("model", refused={"pipeline": _PIPELINE}),
    )
    compute: str = declared("", "`azureml:<cluster>`; default `local`", Text())
    resources: ResourcesFile = declared(ResourcesFile(), "see below")
    settings: InnerSettings = declared(InnerSettings(), "see below")
    torchyard: BatchOwnSettings = declared(BatchOwnSettings(), "torchyard's own, see below")
    component: None = refused(_PIPELINES)
    job_definition: None = refused(_PIPELINES)
    partition_keys: None = refused("files are divided by number: use `mini_batch_size`")

    @rule("settings", *keys(Settings))
    def _once(self) -> None:
        refuse_twice(self, self.settings)


def read(document: Any) -> BatchDeploymentSpec:
    """Check a deployment file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    file = BatchDeploymentFile.read(document)
    return BatchDeploymentSpec(
        name=file.name,
        endpoint_name=file.endpoint_name,
        model=file.model,
        code=file.code_configuration,
        environment=file.environment,
        environment_variables={
            **file.environment_variables,
            **file.settings.environment_variables,
        },
        compute=file.compute.removeprefix("azureml:"),
        resources=file.resources.resources,
        settings=joined(file, file.settings),
        splits_failed_batches=file.torchyard.split_failed_batches,
        description=file.description,
        tags=file.tags,
        properties=file.properties,
    )
