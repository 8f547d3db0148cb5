"""SDK v1's environment service: names, versions and the JSON of its Environment class.

Owns: what of that JSON becomes our definition, and the other way round.
Leaves: names, versions and content to environments/.
Always: an environment that comes back from the client as it was given is the one it was.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.calls import Call, Caller
from torchyard.azureml.errors import AzureRoute
from torchyard.base import azureml_environment
from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError
from torchyard.data import versions
from torchyard.environments import assets, curated, names
from torchyard.environments import shown as showing
from torchyard.environments.actions import Environments
from torchyard.environments.types import EnvironmentAsset

# What CondaDependencies writes for PyPI itself, which is the machine's default or its stand-in.
_PYPI = (
    "--find-links https://pypi.python.org/simple/index.html",
    "--extra-index-url https://pypi.python.org/simple",
)
_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"


def routes(room: Environments, clock: Clock, caller: Caller) -> APIRouter:
    """`/environment/v1.0`, the requests of azureml.core.Environment."""
    found = APIRouter(prefix="/environment/environments", route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]
    told = partial(shown, room)

    # The client asks for the list with a slash at its end.
    @found.get("")
    @found.get("/")
    def list_all(call: the_call) -> JSONResponse:
        workspace = call.workspace.name
        value = [told(workspace, one.name) for one in curated.every()]
        value += [told(workspace, one.name) for one in assets.list_in(room.db, workspace)]
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
        made = registered(room, clock, call, {**call.document, "name": name}, version)
        return JSONResponse(told(call.workspace.name, made.name, made.version))

    return found


def registered(
    room: Environments, clock: Clock, call: Call, asked: Mapping[str, Any], version: str = ""
) -> EnvironmentAsset:
    """The version that holds what was asked; a new one, unless the newest holds it already."""
    document = definition_of(asked)
    request = assets.read_document({**document, "name": asked.get("name")})
    workspace = call.workspace.name
    if not version:
        known = assets.list_in(room.db, workspace, request.name)
        same = [one for one in known if one.definition == request.definition]
        if same:
            return same[0]
    if version:
        request = assets.read_document({**document, "name": asked.get("name"), "version": version})
    return assets.register(
        room.db,
        clock,
        workspace,
        request,
        call.identity.user,
        lambda definition: room.resolve(definition, workspace),
    )


def for_job(room: Environments, clock: Clock, call: Call, asked: Mapping[str, Any]) -> Any:
    """What to write as a job's environment: a reference where it has a name, else all of it.

    An environment that was got by a curated or published name is meant by that name. One with a
    name of its own is registered by being used, as in Azure.
    """
    name = str(asked.get("name") or "")
    if _is_published(room, call.workspace.name, name):
        # Azure's version numbers are not ours; ours come back as they were given.
        return f"azureml:{name}"
    try:
        made = registered(room, clock, call, _keys_lowered(asked))
    except TorchyardError as error:
        if error.at[:1] != ("name",):
            raise
        return definition_of(_keys_lowered(asked))
    return f"azureml:{made.name}:{made.version}"


def definition_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Our definition of what the JSON of an Environment holds.

    Raises:
        InvalidInput: it holds parts that exclude each other.
    """
    body = _keys_lowered(asked)
    docker, python = _part(body, "docker"), _part(body, "python")
    if docker.get("baseDockerfile"):
        raise InvalidInput(
            "a Dockerfile's text is not taken from SDK v1",
            "put it into a folder: `yard environment create -f` with `build: {path: …}`",
        )
    if docker.get("buildContext"):
        raise InvalidInput(
            "an environment with a build context in Git or a storage account is not served",
            "give a base image, conda dependencies or a Dockerfile",
        )
    image = str(docker.get("baseImage") or "") or _IMAGE
    if python.get("userManagedDependencies"):
        return {"image": image}
    conda = python.get("condaDependencies")
    if not isinstance(conda, Mapping):
        return {"image": image}
    return {"image": image, "conda_file": _without_pypi(conda)}


def shown(
    room: Environments, workspace: str, name: str, version: str = versions.LATEST
) -> dict[str, Any]:
    """An environment as the client's class reads it."""
    own = names.bare(name)
    if curated.named(own) is None and not _is_published(room, workspace, name):
        asset = assets.get(room.db, workspace, name, version)
        return to_json(asset.name, asset.version, asset.definition)
    reference = name if version == versions.LATEST else f"{name}:{version}"
    found = showing.resolved(room, workspace, reference)
    pinned = [one for one in found.get("packages", found["requirements"])]
    python = f"python={found['python']}" if found["python"] else "python"
    conda = {
        "name": "project_environment",
        "channels": ["conda-forge"],
        "dependencies": [python, "pip", {"pip": pinned or list(found["requirements"])}],
    }
    version = found["ref"].rpartition(":")[2] if version == versions.LATEST else version
    return to_json(name, version, {"image": _IMAGE, "conda_file": conda})


def _is_published(room: Environments, workspace: str, name: str) -> bool:
    """Whether a name is a curated or published environment's, not one of the workspace's own."""
    if not name or assets.owned(room.db, workspace)(name):
        return False
    try:
        room.resolve(f"azureml:{name}", workspace)
    except TorchyardError:
        return name.lower().startswith("azureml")
    return True


def to_json(name: str, version: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of azureml.core.Environment, in its own serialization."""
    conda = definition.get("conda_file")
    if isinstance(conda, str):
        import yaml

        conda = yaml.safe_load(conda)
    if conda is None and definition.get("pip_requirements"):
        lines = str(definition["pip_requirements"]).splitlines()
        conda = {"dependencies": ["python", {"pip": [one for one in lines if one.strip()]}]}
    image = None if definition.get("build") else definition.get("image")
    found = azureml_environment.document(name, version, image, conda is None)
    found["python"]["condaDependencies"] = conda
    return found


def _without_pypi(conda: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in conda.items() if key != "name"}
    dependencies = []
    for one in found.get("dependencies") or []:
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
