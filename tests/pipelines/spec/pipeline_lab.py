"""Pipelines that are checked against a workspace, with components to write them of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from jobs.support import ME, WORKSPACE
from torchyard.base.errors import InvalidSpec, TorchyardError
from torchyard.components import actions as components
from torchyard.jobs.services import Services
from torchyard.pipelines.running import creation
from torchyard.pipelines.running.creation import CheckedPipeline
from torchyard.pipelines.spec.plan import Step

PREP: dict[str, Any] = {
    "type": "command",
    "command": "prepare --rows ${{inputs.rows}} --to ${{outputs.table}}",
    "environment": "azureml:sklearn@latest",
    "inputs": {"rows": {"type": "integer", "default": "100", "min": "1", "max": "1000"}},
    "outputs": {"table": {"type": "uri_folder"}},
}
TRAIN: dict[str, Any] = {
    "type": "command",
    "command": "train --data ${{inputs.data}} $[[--rate ${{inputs.rate}}]] "
    "--model ${{outputs.model}}",
    "environment": "sklearn",
    "inputs": {"data": {"type": "uri_folder"}, "rate": {"type": "number", "optional": "true"}},
    "outputs": {"model": {"type": "uri_folder"}},
}
OWN: dict[str, Any] = {"command": "true", "environment": "python"}


def of_inputs(**ports: Any) -> dict[str, Any]:
    """A component that echoes its inputs."""
    uses = " ".join(f"$[[${{{{inputs.{name}}}}}]]" for name in ports)
    return {"command": f"echo {uses}", "environment": "python", "inputs": ports}


def pipeline(**keys: Any) -> dict[str, Any]:
    return {"type": "pipeline", **keys}


def prep_and_train(**changes: Any) -> dict[str, Any]:
    """Two steps, the second of which takes what the first makes; `train__inputs__data=…` sets a
    key of a step.
    """
    table = "${{parent.jobs.prep.outputs.table}}"
    jobs: dict[str, Any] = {
        "prep": {"component": PREP},
        "train": {"component": TRAIN, "inputs": {"data": table}},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        body = jobs
        for key in parents:
            body[key] = dict(body.get(key) or {})
            body = body[key]
        body[last] = value
    return pipeline(jobs=jobs)


@dataclass
class PipelineLab:
    services: Services

    def register(self, name: str, definition: Mapping[str, Any]) -> str:
        """Its new version."""
        document = {"name": name, **definition}
        db, clock = self.services.db, self.services.clock
        return components.register(db, clock, WORKSPACE, document, ME.user)[0].version

    def check(self, document: Any, uploaded: bool = True) -> CheckedPipeline:
        return creation.check(self.services, WORKSPACE, document, uploaded)

    def step(self, document: Any, name: str) -> Step:
        return next(step for step in self.check(document).plan.steps if step.name == name)

    def inputs(self, document: Any, name: str) -> Any:
        """Those of a step that are known, as of a job's file."""
        return self.step(document, name).document.get("inputs", {})

    def refused(self, document: Any, uploaded: bool = True) -> InvalidSpec:
        with pytest.raises(InvalidSpec) as error:
            self.check(document, uploaded)
        for each in (error.value, *error.value.others):
            assert each.hint, each.message
        return error.value

    def faults(self, document: Any, uploaded: bool = True) -> list[tuple[str, str]]:
        """Place and code of each."""
        error = self.refused(document, uploaded)
        return [place_and_code(each) for each in (error, *error.others)]


def place_and_code(error: TorchyardError) -> tuple[str, str]:
    return ".".join(map(str, error.at)), error.code
