"""SDK v1's environment service: names, versions and the JSON of its Environment class.

Owns: what of that JSON becomes our definition, and the other way round.
Leaves: names, versions and content to environments/.
Always: an environment that comes back from the client as it was given is the one it was.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.assets import versions
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute, NotServed
from torchyard.base import azureml_environment
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError
from torchyard.environments import assets
from torchyard.environments import to_json as showing
from torchyard.environments.names import catalogue, curated_environments
from torchyard.environments.services import Environments
from torchyard.environments.types import EnvironmentAsset

# What CondaDependencies writes for PyPI itself, which is the machine's default or its stand-in.
_PYPI = (
    "--find-links https://pypi.python.org/simple/index.html",
    "--extra-index-url https://pypi.python.org/simple",
)
# A run gets its variables with its own configuration; here they wait to be got again.
_BESIDE, _KEPT = ("environmentVariables", "inferencingStackVersion"), "torchyard.sdk_v1"
_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"


def routes(services: Environments, clock: Clock, caller: Caller) -> APIRouter:
    """`/environment/v1.0`, the requests of azureml.core.Environment."""
    found = APIRouter(prefix="/environment/environments", route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]
    told = partial(shown, services)

    # The client asks for the list with a slash at its end.
    @found.get("")
    @found.get("/")
    def list_all(call: the_call) -> JSONResponse:
        workspace = call.workspace.name
        value = [told(workspace, one.name) for one in curated_environments.every()]
        value += [told(workspace, one.name) for one in assets.list_in(services.db, workspace)]
        return JSONResponse({"value": value, "continuationToken": None})

    @found.get("/{name}")
    def latest(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(told(call.workspace.name, name))

    @found.get("/{name}/versions/{version}")
    def version_of(call: the_call, name: str, version: str) -> JSONResponse:
        return JSONResponse(told(call.workspace.name, name, version))

    @found.get("/{name}/labels/{label}")
    def labelled(call: the_call, name: str, label: str) -> JSONResponse:
        if label.lower() != versions.LATEST:
            raise NotFound(f"environment `{name}` has no label `{label}`", "the label is `latest`")
        return JSONResponse(told(call.workspace.name, name))

    @found.put("/{name}")
    @found.put("/{name}/versions/{version}")
    def register(call: the_call, name: str, version: str = "") -> JSONResponse:
        try:
            made = registered(services, clock, call, {**call.document, "name": name}, version)
        except TorchyardError as error:
            body = _keys_lowered(call.document)
            # `build` registers what it was given, whatever that is.
            if error.at[:1] != ("name",) or not _is_published_as_is(
                services, call.workspace.name, name, body
            ):
                raise
            return JSONResponse(told(call.workspace.name, name))
        return JSONResponse(told(call.workspace.name, made.name, made.version))

    def no_image(call: the_call, name: str) -> JSONResponse:
        raise NotServed(
            f"environment `{name}` is no image in a registry: it is built on the server's machine "
            "by the first run that needs it, and kept",
            f"build it now with `yard environment build -n {name}`",
        )

    # What else is asked about an environment is about its image: `image`, `recipe` and their kin.
    found.add_api_route("/{name}/{rest:path}", no_image, methods=["GET", "POST"])
    return found


def registered(
    services: Environments, clock: Clock, call: Call, asked: Mapping[str, Any], version: str = ""
) -> EnvironmentAsset:
    """The version that holds what was asked; a new one, unless the newest holds it already."""
    document = {
        **definition_of(services, asked),
        "name": asked.get("name"),
        "properties": _kept(asked),
    }
    request = assets.read_document(document)
    workspace = call.workspace.name
    if version:
        request = assets.read_document({**document, "version": version})
    else:
        known = assets.list_in(services.db, workspace, request.name)
        wanted = request.definition, request.properties
        same = [one for one in known if (one.definition, one.properties) == wanted]
        if same:
            return same[0]
    return assets.register(
        services.db,
        clock,
        workspace,
        request,
        call.identity.user,
        lambda definition: services.resolver.resolve(definition, workspace),
    )


def for_job(services: Environments, clock: Clock, call: Call, asked: Mapping[str, Any]) -> Any:
    """What to write as a job's environment: a reference where it has a name, else all of it.

    An environment that was got by a curated or published name is meant by that name. One with a
    name of its own is registered by being used, as in Azure.
    """
    body = _keys_lowered(asked)
    name = str(body.get("name") or "")
    if _is_published_as_is(services, call.workspace.name, name, body) is not False:
        # Azure's version numbers are not ours; ours come back as they were given.
        return f"azureml:{name}"
    try:
        made = registered(services, clock, call, body)
    except TorchyardError as error:
        if error.at[:1] != ("name",):
            raise
        return definition_of(services, body)
    return f"azureml:{made.name}:{made.version}"


def definition_of(services: Environments, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Our definition of what the JSON of an Environment holds.

    Raises:
        InvalidInput: it holds parts that exclude each other.
        NotServed: a build context elsewhere, or a registry's password.
    """
    body = _keys_lowered(asked)
    docker, python = _part(body, "docker"), _part(body, "python")
    found = _base(services, docker)
    conda = python.get("condaDependencies")
    if python.get("userManagedDependencies") or not isinstance(conda, Mapping):
        return found
    return {**found, "conda_file": _without_pypi(conda)}


def _kept(asked: Mapping[str, Any]) -> dict[str, str]:
    """What an environment of SDK v1 says and ours has no place for, as a property."""
    body = _keys_lowered(asked)
    found = {key: body[key] for key in _BESIDE if body.get(key)}
    return {_KEPT: json.dumps(found, sort_keys=True)} if found else {}


def _base(services: Environments, docker: Mapping[str, Any]) -> dict[str, Any]:
    """What packages are put into: an image, or what a Dockerfile makes."""
    image, text = str(docker.get("baseImage") or ""), str(docker.get("baseDockerfile") or "")
    context = _part(docker, "buildContext")
    if [bool(image), bool(text), bool(context)].count(True) > 1:
        raise InvalidInput(
            "an environment has more than one of `base_image`, `base_dockerfile` and "
            "`build_context`",
            "set the others to None",
        )
    if text:
        return {"build": {"path": services.images.context_of(text)}}
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
            f"what opens the registry `{address}` is not taken from an environment",
            "log in once on the server's machine, as its user: `podman login`",
        )
    if not image or not address or image.startswith(f"{address}/"):
        return image
    return f"{address}/{image}"


def shown(
    services: Environments, workspace: str, name: str, version: str = versions.LATEST
) -> dict[str, Any]:
    """An environment as the client's class reads it."""
    own = catalogue.bare(name)
    if curated_environments.named(own) is None and not _is_published(services, workspace, name):
        asset = assets.get(services.db, workspace, name, version)
        found = to_json(services, asset.name, asset.version, asset.definition)
        return {**found, **json.loads(asset.properties.get(_KEPT, "{}"))}
    reference = name if version == versions.LATEST else f"{name}:{version}"
    seen = showing.resolved_json(services, workspace, reference)
    pinned = [one for one in seen.get("packages", seen["requirements"])]
    python = f"python={seen['python']}" if seen["python"] else "python"
    conda = {
        "name": "project_environment",
        "channels": ["conda-forge"],
        "dependencies": [python, "pip", {"pip": pinned or list(seen["requirements"])}],
    }
    version = seen["ref"].rpartition(":")[2] if version == versions.LATEST else version
    return to_json(services, name, version, {"image": _IMAGE, "conda_file": conda})


def _is_published(services: Environments, workspace: str, name: str) -> bool:
    """Whether a name is a curated or published environment's, not one of the workspace's own."""
    if not name or assets.owned(services.db, workspace)(name):
        return False
    try:
        services.resolver.resolve(f"azureml:{name}", workspace)
    except TorchyardError:
        return name.lower().startswith("azureml")
    return True


def _is_published_as_is(
    services: Environments, workspace: str, name: str, asked: Mapping[str, Any]
) -> bool | None:
    """Whether it is what a curated or published name stands for; None where that can't be had.

    Somebody's own environment may have such a name (`pytorch-1.6-gpu`), and one that was got by it
    may have been changed since.
    """
    if not _is_published(services, workspace, name):
        return False
    try:
        known = shown(services, workspace, name)
    except TorchyardError:
        # Whoever creates a job of it, or registers it, says why.
        return None
    return definition_of(services, asked) == definition_of(services, known)


def to_json(
    services: Environments, name: str, version: str, definition: Mapping[str, Any]
) -> dict[str, Any]:
    """The keys of azureml.core.Environment, in its own serialization."""
    conda = definition.get("conda_file")
    if isinstance(conda, str):
        import yaml

        conda = yaml.safe_load(conda)
    if conda is None and definition.get("pip_requirements"):
        lines = str(definition["pip_requirements"]).splitlines()
        conda = {"dependencies": ["python", {"pip": [one for one in lines if one.strip()]}]}
    build = definition.get("build")
    image = None if build else definition.get("image")
    found = azureml_environment.document(name, version, image, conda is None)
    found["python"]["condaDependencies"] = conda
    if build:
        text = services.images.text_alone(build["path"])
        file = build.get("dockerfile_path") or "Dockerfile"
        context = {"locationType": None, "location": build["path"], "dockerfilePath": file}
        found["docker"] |= {"baseDockerfile": text} if text else {"buildContext": context}
    return found


def _without_pypi(conda: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in conda.items() if key != "name"}
    dependencies, given = [], found.get("dependencies") or []
    if not isinstance(given, list):
        raise InvalidInput("the environment's conda `dependencies` are no list")
    for one in given:
        if isinstance(one, Mapping) and isinstance(one.get("pip"), list):
            one = {"pip": [line for line in one["pip"] if line not in _PYPI]}
        dependencies.append(one)
    found["dependencies"] = dependencies
    return found


def _keys_lowered(asked: Mapping[str, Any]) -> dict[str, Any]:
    """`Docker` and `docker` are the same to the client."""
    return {key[:1].lower() + key[1:]: value for key, value in asked.items()}


def _part(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = body.get(key)
    return _keys_lowered(found) if isinstance(found, Mapping) else {}
