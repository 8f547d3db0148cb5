"""The batch deployment's file: from a mapping to a `BatchDeploymentSpec`.

Owns: `BatchDeploymentSpec`; what stands at the top of a deployment's file.
Leaves: how it scores to settings.py; its model, code and environment to
endpoints/spec/deployment_spec.py, since they are those of an online deployment; whether they exist
to actions.
Always: a `BatchDeploymentSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import Refused, Text, Word
from torchyard.base.documents.models import declared, keys, refused, rule
from torchyard.batch_endpoints.spec.settings import (
    BatchSettings,
    InnerSettings,
    OwnSettings,
    Resources,
    ResourcesFile,
    Settings,
    joined,
    refuse_twice,
)
from torchyard.endpoints.spec import deployment_spec as online

_SETTINGS, _RESOURCES = BatchSettings(), Resources()
_PIPELINES = Refused(
    "pipelines are not deployed: submit a job, or deploy the model of its last step"
)
_PIPELINE = (
    "`type: pipeline` is not served: a batch endpoint deploys models",
    "submit the pipeline's steps as jobs, or deploy the model of its last step",
)


@dataclass(frozen=True)
class BatchDeploymentSpec(online.AnyDeploymentSpec):
    """`compute` is empty for `local`."""

    compute: str = ""
    resources: Resources = _RESOURCES
    settings: BatchSettings = _SETTINGS
    splits_failed_batches: bool = True


class BatchDeploymentFile(Settings, online.DeploymentFile):
    type: str = declared(
        "model",
        "`model` (the default); `pipeline` is refused by name",
        Word("model", refused={"pipeline": _PIPELINE}),
    )
    compute: str = declared("", "`azureml:<cluster>`; default `local`", Text())
    resources: ResourcesFile = declared(ResourcesFile(), "see below")
    settings: InnerSettings = declared(InnerSettings(), "see below")
    torchyard: OwnSettings = declared(OwnSettings(), "torchyard's own, see below")
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
    variables = {**file.environment_variables, **file.settings.environment_variables}
    return BatchDeploymentSpec(
        **{**file.of_any, "environment_variables": variables},
        compute=file.compute.removeprefix("azureml:"),
        resources=file.resources.resources,
        settings=joined(file, file.settings),
        splits_failed_batches=file.torchyard.split_failed_batches,
    )
