"""The environment of an instance: the deployment's, with Azure's inference server.

Owns: whether the server is in it already, the definition that adds it.
Leaves: resolving and building to environments/.
Always: a package that the deployment names keeps its version: the resolver takes the newest server
that fits, else the newest one, whose limits give way; an environment that is an image of its own
stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.endpoints.spec.deployment_spec import DeploymentSpec
from torchyard.environments.assembly import Environments
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.types import EnvironmentSpec

SERVER = "azureml-inference-server-http"
# Both bring it.
_HOLDERS = (SERVER, "azureml-defaults")


def has_server(environment: EnvironmentSpec) -> bool:
    return any(package_name(line) in _HOLDERS for line in environment.packages)


def for_instances(
    environments: Environments, workspace: str, spec: DeploymentSpec
) -> tuple[str | Mapping[str, Any], dict[str, str], str]:
    """What the job names, variables that go with it, and what was added, empty for nothing.

    Raises:
        InvalidSpec: it can't be resolved any more.
        NotFound: it is gone.
    """
    assert spec.environment is not None
    environment = environments.resolver.resolve(spec.environment, workspace)
    if environment.image is not None or has_server(environment):
        return spec.environment, {}, ""
    dependencies: list[Any] = []
    # Conda does not read such a range: then the resolver's own choice, which lies in it, is taken.
    if environment.python and not environment.is_any_python:
        exact = environment.python[0].isdigit()
        dependencies.append(
            f"python={environment.python}" if exact else f"python{environment.python}"
        )
    dependencies += [*environment.conda, "pip"]
    dependencies.append({"pip": [*environment.requirements, *environment.layers, SERVER]})
    conda_file: dict[str, Any] = {"name": "serving", "dependencies": dependencies}
    if environment.channels:
        conda_file["channels"] = list(environment.channels)
    message = f"`{SERVER}` was added to the environment, which lacks it"
    return {"conda_file": conda_file}, dict(environment.variables), message
