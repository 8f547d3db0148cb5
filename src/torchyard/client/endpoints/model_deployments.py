"""Deploy a registered model behind an endpoint, in one step.

Owns: names that were not chosen, the environment of the model's job, giving it all traffic.
Leaves: the requests to online_endpoints.py and online_deployments.py; the environment of a model
that brings its own to the server.
Always: an endpoint that is there keeps its other deployments and their traffic until the new one
answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.client.endpoints.online_deployments import OnlineDeployment, OnlineDeployments
from torchyard.client.endpoints.online_endpoints import OnlineEndpoint, OnlineEndpoints

if TYPE_CHECKING:
    from torchyard.client.assets import Asset
    from torchyard.client.jobs import Jobs


@dataclass(frozen=True)
class ModelDeployment:
    """How to deploy a model; see `Models.deploy`."""

    endpoint: str = ""
    deployment: str = "blue"
    environment: str = ""
    code: str = ""
    scoring_script: str = "score.py"
    instance_count: int = 1


@dataclass(frozen=True)
class Deployer:
    endpoints: OnlineEndpoints
    deployments: OnlineDeployments
    jobs: Jobs

    def deploy(
        self,
        model: Asset,
        options: ModelDeployment,
        wait: bool = True,
        tell: Callable[[OnlineDeployment], None] | None = None,
    ) -> tuple[OnlineEndpoint, OnlineDeployment]:
        """
        Args:
            wait: return once it answers and has all traffic; else at once, without traffic.
            tell: called with what it is after each look.

        Raises:
            InvalidInput: the endpoint needs a name, or the model an environment.
            DeploymentFailed: it failed; the message says why.
        """
        document: dict[str, Any] = {
            "name": options.deployment,
            "endpoint_name": options.endpoint or name_from(model.name),
            "model": f"azureml:{model.name}:{model.version}",
            "instance_count": options.instance_count,
        }
        environment = options.environment or self._environment_of(model)
        if environment:
            document["environment"] = environment
        if options.code:
            document["code_configuration"] = {
                "code": options.code, "scoring_script": options.scoring_script
            }  # fmt: skip
        endpoint = self._endpoint(str(document["endpoint_name"]))
        made = self.deployments.create(document, Path.cwd())
        if not wait:
            return endpoint, made
        made = self.deployments.wait(made, tell=tell)
        return self.endpoints.update(endpoint.name, {"traffic": {made.name: 100}}), made

    def _endpoint(self, name: str) -> OnlineEndpoint:
        try:
            return self.endpoints.get(name)
        except NotFound:
            return self.endpoints.create({"name": name})

    def _environment_of(self, model: Asset) -> Any:
        """That of the job that made it; None where it brings its own, or nothing is known."""
        job = model.raw.get("job")
        if model.type == "mlflow_model" or not job:
            return None
        try:
            return self.jobs.get(job).raw["spec"].get("environment")
        except (NotFound, KeyError):
            return None


def name_from(model: str) -> str:
    """Within an endpoint's grammar.

    Raises:
        InvalidInput: nothing of the model's name is.
    """
    plain = re.sub(r"[^a-zA-Z0-9]+", "-", model)[:32].strip("-")
    if not re.match(r"[a-zA-Z].{2,}\Z", plain):
        raise InvalidInput(
            f"`{model}` makes no endpoint's name", "name the endpoint with `--endpoint`"
        )
    return plain
