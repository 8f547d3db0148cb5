"""Writes `src/torchyard/schemas/`: a JSON Schema of each file that people write.

Owns: which files there are, by the name that `yard schema` knows.
Leaves: what they say to the models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchyard.base.documents.models import File
from torchyard.batch_endpoints.spec.deployment_spec import BatchDeploymentFile
from torchyard.batch_endpoints.spec.endpoint_spec import BatchEndpointFile
from torchyard.batch_endpoints.spec.invocation import InvocationFile
from torchyard.components.documents import CommandComponentFile, PipelineComponentFile
from torchyard.compute.documents import ComputeFile
from torchyard.connections.documents import ConnectionFile
from torchyard.data.assets import DataFile
from torchyard.endpoints.spec.deployment_spec import OnlineDeploymentFile
from torchyard.endpoints.spec.endpoint_spec import OnlineEndpointFile
from torchyard.environments.documents import EnvironmentFile
from torchyard.instances.documents import InstanceFile
from torchyard.jobs.spec.job_spec import JobFile
from torchyard.models.documents import ModelFile
from torchyard.pipelines.spec.pipeline_file import PipelineFile
from torchyard.sweeps.spec.sweep_spec import SweepFile
from torchyard.workspaces.documents import WorkspaceFile

FOLDER = Path(__file__).parents[1] / "src/torchyard/schemas"
FILES: Mapping[str, type[File]] = {
    "job": JobFile,
    "online-endpoint": OnlineEndpointFile,
    "online-deployment": OnlineDeploymentFile,
    "batch-endpoint": BatchEndpointFile,
    "batch-deployment": BatchDeploymentFile,
    "invocation": InvocationFile,
    "sweep": SweepFile,
    "pipeline": PipelineFile,
    "compute": ComputeFile,
    "environment": EnvironmentFile,
    "data": DataFile,
    "model": ModelFile,
    "component": CommandComponentFile,
    "connection": ConnectionFile,
    "instance": InstanceFile,
    "workspace": WorkspaceFile,
}


def text(name: str) -> str:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name}
    body = _component() if name == "component" else FILES[name].as_json_schema()
    return json.dumps({**schema, **body}, indent=1, ensure_ascii=False) + "\n"


def _component() -> dict[str, Any]:
    """A component has the keys of its type, and steps those of a pipeline."""
    of_pipeline = PipelineComponentFile.as_json_schema()
    of_pipeline["properties"]["jobs"] = PipelineFile.as_json_schema()["properties"]["jobs"]
    return {
        "type": "object",
        "if": {"properties": {"type": {"const": "pipeline"}}, "required": ["type"]},
        "then": of_pipeline,
        "else": CommandComponentFile.as_json_schema(),
    }


def main() -> None:
    for name in FILES:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
