"""SDK v1's environment service: names, versions and the JSON of its Environment class.

Owns: the translation between that JSON and our definitions.
Leaves: names, versions and content to environments/.
Always: an environment that the client returns unchanged is the same environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi.responses import JSONResponse

from torchyard.assets import versions
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.base import azureml_environment
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.base.bodies import yaml_documents
from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError
from torchyard.environments import assets
from torchyard.environments import to_json as showing
from torchyard.environments.assembly import Environments
from torchyard.environments.names import catalogue, curated_environments, published
from torchyard.environments.types import EnvironmentAsset
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

# What CondaDependencies writes for PyPI, which is the machine's default index or its mirror.
_PYPI = (
    "--find-links https://pypi.python.org/simple/index.html",
    "--extra-index-url https://pypi.python.org/simple",
)
# Keys without a place in our definitions. A run gets its variables with its own configuration.
_V1_KEYS, _V1_PROPERTY = ("environmentVariables", "inferencingStackVersion"), "torchyard.sdk_v1"
_PUBLISHED = "AzureML-"
_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"


routes = RouteTable("/environment/environments")


# The client requests the list with a slash at its end.
@routes.get("", "/")
@needs(Permission.READ)
def list_all(call: AzureCall, services: ServicesOf) -> JSONResponse:
    workspace, environments = call.workspace.name, services.environments
    names = [curated.name for curated in curated_environments.every()]
    names += [asset.name for asset in assets.list_in(environments.db, workspace)]
    value = [environment_json(environments, workspace, name) for name in dict.fromkeys(names)]
    value += _published(environments, workspace)
    return JSONResponse({"value": value, "continuationToken": None})


def _published(environments: Environments, workspace: str) -> list[dict[str, Any]]:
    """Azure's names that a job may use here, as Azure writes them."""
    documents = []
    for name in published.names():
        # Where substitutes have to be allowed first, a job could not use it, either.
        with suppress(TorchyardError):
            documents.append(environment_json(environments, workspace, f"{_PUBLISHED}{name}"))
    return documents


@routes.get("/{name}")
@needs(Permission.READ)
def get_latest(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    return JSONResponse(environment_json(services.environments, call.workspace.name, name))


@routes.get("/{name}/versions/{version}")
@needs(Permission.READ)
def get_version(call: AzureCall, services: ServicesOf, name: str, version: str) -> JSONResponse:
    return JSONResponse(environment_json(services.environments, call.workspace.name, name, version))


@routes.get("/{name}/labels/{label}")
@needs(Permission.READ)
def get_labeled(call: AzureCall, services: ServicesOf, name: str, label: str) -> JSONResponse:
    if label.lower() != versions.LATEST:
        raise NotFound(f"environment `{name}` has no label `{label}`", "the label is `latest`")
    return JSONResponse(environment_json(services.environments, call.workspace.name, name))


@routes.put("/{name}", "/{name}/versions/{version}")
@needs(Permission.WRITE)
def put(call: AzureCall, services: ServicesOf, name: str, version: str = "") -> JSONResponse:
    workspace, environments = call.workspace.name, services.environments
    document = {**call.document, "name": name}
    try:
        asset = register(environments, services.clock, call, document, version)
    except TorchyardError as error:
        body = _keys_lowered(call.document)
        # `build` registers any environment, a published one, too.
        if error.at[:1] != ("name",) or not _is_published_unchanged(
            environments, workspace, name, body
        ):
            raise
        return JSONResponse(environment_json(environments, workspace, name))
    return JSONResponse(environment_json(environments, workspace, asset.name, asset.version))


def get_image(call: AzureCall, name: str) -> JSONResponse:
    raise NotServed(
        f"environment `{name}` is not an image in a registry: it is built on the server's machine "
        "by the first run that needs it, and kept",
        f"build it now with `environment.build(workspace)`, or `yard environment build -n {name}`",
    )


# All other requests about an environment are about its image: `image`, `recipe` and so on.
routes.add(["GET"], "/{name}/{rest:path}", needs(Permission.READ)(partial(get_image)))
routes.add(["POST"], "/{name}/{rest:path}", needs(Permission.WRITE)(partial(get_image)))


def register(
    environments: Environments,
    clock: Clock,
    call: Call,
    environment: Mapping[str, Any],
    version: str = "",
) -> EnvironmentAsset:
    """The version with this content; a new one, unless a version has it already."""
    workspace = call.workspace.name
    document = {
        **definition_of(environments, workspace, environment),
        "name": environment.get("name"),
        "properties": _v1_properties(environment),
    }
    request = assets.read_document(document)
    if version:
        request = assets.read_document({**document, "version": version})
    else:
        content = request.definition, request.properties
        for asset in assets.list_in(environments.db, workspace, request.name):
            if (asset.definition, asset.properties) == content:
                return asset
    return assets.register(
        environments.db,
        clock,
        workspace,
        request,
        call.identity.user,
        lambda definition: environments.resolver.resolve(definition, workspace),
    )


def for_job(
    environments: Environments, clock: Clock, call: Call, environment: Mapping[str, Any]
) -> Any:
    """A job's `environment`: a reference if it has a name, otherwise its definition.

    An unchanged environment with a curated or published name stands for that name. One with a name
    of its own is registered when it is used, as in Azure.
    """
    body = _keys_lowered(environment)
    name = str(body.get("name") or "")
    if _is_published_unchanged(environments, call.workspace.name, name, body) is not False:
        # Azure's version numbers are not ours; the client returns ours unchanged.
        return f"azureml:{name}"
    try:
        asset = register(environments, clock, call, body)
    except TorchyardError as error:
        if error.at[:1] != ("name",):
            raise
        return definition_of(environments, call.workspace.name, body)
    return f"azureml:{asset.name}:{asset.version}"


def definition_of(
    environments: Environments, workspace: str, environment: Mapping[str, Any]
) -> dict[str, Any]:
    """Our definition for the JSON of an Environment.

    Raises:
        InvalidInput: parts of it exclude each other.
        NotServed: a build context elsewhere, or a registry's password.
    """
    body = _keys_lowered(environment)
    docker, python = _part(body, "docker"), _part(body, "python")
    definition = _base(environments, workspace, docker)
    conda = python.get("condaDependencies")
    if python.get("userManagedDependencies") or not isinstance(conda, Mapping):
        return definition
    return {**definition, "conda_file": _without_pypi(conda)}


def _v1_properties(environment: Mapping[str, Any]) -> dict[str, str]:
    """The keys of SDK v1 that have no place in our definition, as a property."""
    body = _keys_lowered(environment)
    values = {key: body[key] for key in _V1_KEYS if body.get(key)}
    return {_V1_PROPERTY: json.dumps(values, sort_keys=True)} if values else {}


def _base(environments: Environments, workspace: str, docker: Mapping[str, Any]) -> dict[str, Any]:
    """What packages are installed into: an image, or the result of a Dockerfile."""
    image, text = str(docker.get("baseImage") or ""), str(docker.get("baseDockerfile") or "")
    context = _part(docker, "buildContext")
    if [bool(image), bool(text), bool(context)].count(True) > 1:
        raise InvalidInput(
            "an environment has more than one of `base_image`, `base_dockerfile` and "
            "`build_context`",
            "set the others to None",
        )
    if text:
        return {"build": {"path": environments.images.context_of(workspace, text)}}
    if context:
        path = str(context.get("location") or "")
        if not path.startswith(SNAPSHOT_PREFIX):
            raise NotServed(
                "a build context in Git or a storage account is not served for SDK v1",
                "give `base_dockerfile`, or send the folder along: `yard environment create -f` "
                "with `build: {path: …}`",
            )
        file = context.get("dockerfilePath") or "Dockerfile"
        return {"build": {"path": path, "dockerfile_path": str(file)}}
    return {"image": _with_registry(image, _part(docker, "baseImageRegistry")) or _IMAGE}


def _with_registry(image: str, registry: Mapping[str, Any]) -> str:
    address = str(registry.get("address") or "").rstrip("/")
    if registry.get("username") or registry.get("password") or registry.get("registryIdentity"):
        raise NotServed(
            f"credentials of the registry `{address}` are not read from an environment",
            "log in once on the server's machine, as its user: `podman login`",
        )
    if not image or not address or image.startswith(f"{address}/"):
        return image
    return f"{address}/{image}"


def environment_json(
    environments: Environments, workspace: str, name: str, version: str = versions.LATEST
) -> dict[str, Any]:
    """An environment as the client's class reads it.

    The conda dependencies of one that has another in its place are called as that.
    """
    bare_name = catalogue.bare(name)
    if curated_environments.find_by_name(bare_name) is None and not _is_published(
        environments, workspace, name
    ):
        asset = assets.get(environments.db, workspace, name, version)
        document = to_json(environments, workspace, asset.name, asset.version, asset.definition)
        return {**document, **json.loads(asset.properties.get(_V1_PROPERTY, "{}"))}
    reference = name if version == versions.LATEST else f"{name}:{version}"
    resolved = showing.resolved_json(environments, workspace, reference)
    packages = list(resolved.get("packages", resolved["requirements"]))
    python = f"python={resolved['python']}" if resolved["python"] else "python"
    conda = {
        "name": resolved["ref"].rpartition(":")[0],
        "channels": ["conda-forge"],
        "dependencies": [python, "pip", {"pip": packages or list(resolved["requirements"])}],
    }
    version = resolved["ref"].rpartition(":")[2] if version == versions.LATEST else version
    return to_json(environments, workspace, name, version, {"image": _IMAGE, "conda_file": conda})


def _is_published(environments: Environments, workspace: str, name: str) -> bool:
    """Whether a name is that of a curated or published environment, and not of the workspace."""
    if not name or assets.owned(environments.db, workspace)(name):
        return False
    try:
        environments.resolver.resolve(f"azureml:{name}", workspace)
    except TorchyardError:
        return name.lower().startswith("azureml")
    return True


def _is_published_unchanged(
    environments: Environments, workspace: str, name: str, environment: Mapping[str, Any]
) -> bool | None:
    """Whether it equals the curated or published one of its name; None if that is unavailable.

    A user's own environment may have such a name (`pytorch-1.6-gpu`), and one that was read by it
    may have been changed since.
    """
    if not _is_published(environments, workspace, name):
        return False
    try:
        published = environment_json(environments, workspace, name)
    except TorchyardError:
        # Creating a job with it, or registering it, reports the reason.
        return None
    mine, theirs = (
        definition_of(environments, workspace, each) for each in (environment, published)
    )
    return mine == theirs


def to_json(
    environments: Environments,
    workspace: str,
    name: str,
    version: str,
    definition: Mapping[str, Any],
) -> dict[str, Any]:
    """The keys of azureml.core.Environment, in its own serialization."""
    conda = definition.get("conda_file")
    if isinstance(conda, str):
        conda = yaml_documents.load(conda, "the conda file")
    if conda is None and definition.get("pip_requirements"):
        lines = str(definition["pip_requirements"]).splitlines()
        python = f"python={definition['python']}" if "python" in definition else "python"
        conda = {"dependencies": [python, {"pip": [line for line in lines if line.strip()]}]}
    build = definition.get("build")
    image = None if build else definition.get("image")
    document = azureml_environment.document(name, version, image, conda is None)
    document["python"]["condaDependencies"] = conda
    if build:
        text = environments.images.text_alone(workspace, build["path"])
        file = build.get("dockerfile_path") or "Dockerfile"
        context = {"locationType": None, "location": build["path"], "dockerfilePath": file}
        document["docker"] |= {"baseDockerfile": text} if text else {"buildContext": context}
    return document


def _without_pypi(conda: Mapping[str, Any]) -> dict[str, Any]:
    dependencies = conda.get("dependencies") or []
    if not isinstance(dependencies, list):
        raise InvalidInput("the environment's conda `dependencies` are not a list")
    remaining = []
    for dependency in dependencies:
        if isinstance(dependency, Mapping) and isinstance(dependency.get("pip"), list):
            dependency = {"pip": [line for line in dependency["pip"] if line not in _PYPI]}
        remaining.append(dependency)
    without_name = {key: value for key, value in conda.items() if key != "name"}
    return {**without_name, "dependencies": remaining}


def _keys_lowered(document: Mapping[str, Any]) -> dict[str, Any]:
    """`Docker` and `docker` are the same to the client."""
    return {key[:1].lower() + key[1:]: value for key, value in document.items()}


def _part(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    return _keys_lowered(value) if isinstance(value, Mapping) else {}
