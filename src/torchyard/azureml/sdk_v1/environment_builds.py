"""SDK v1's `Environment.build`: a build begins, its status is asked for, its log is read; what
`get_image_details` returns, and what `build_local` needs.

Owns: the routes; the address of a log, which the client opens without a token.
Leaves: building to environments/requested_builds.py, names and versions to environments/.
Always: a log's address is signed for the caller and ends with their token; what a failed build
ended with is the log's last line.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse

from torchyard.azureml.blob import signatures
from torchyard.azureml.common.calls import AzureCall
from torchyard.azureml.common.context import Context
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.errors import InvalidInput
from torchyard.environments import copying
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_STATUSES = {
    "building": "Running",
    "ready": "Succeeded",
    "failed": "Failed",
    "canceled": "Canceled",
}
_LONGEST_LOG_BYTES = 16 << 20

routes = RouteTable("/environment")


def begin(
    call: AzureCall, context: Context, name: str, version: str = "", compute: str = ""
) -> JSONResponse:
    """`compute` is where Azure would build; here builds run on the server's machine."""
    environments = context.services.environments
    spec = environments.resolver.resolve(_reference(name, version), call.workspace.name)
    hash = context.builds.begin(spec)["hash"]
    return JSONResponse({"location": _location(call, hash)}, status_code=202)


def image_details(call: AzureCall, context: Context, name: str, version: str = "") -> JSONResponse:
    """`get_image_details`: the folder that a build makes, where Azure has an image."""
    environments = context.services.environments
    spec = environments.resolver.resolve(_reference(name, version), call.workspace.name)
    folder = environments.folders.find(spec)
    dockerfile = None
    with suppress(InvalidInput):  # an image has none
        dockerfile = copying.export_spec(environments, spec, "dockerfile", name)["text"]
    return JSONResponse(
        {
            "imageExistsInRegistry": folder is not None,
            "dockerImage": {"name": spec.ref or name, "registry": {"address": None}},
            "pythonEnvironment": {
                "interpreterPath": f"{folder}/bin/python" if folder else None,
                "condaEnvironmentPath": str(folder) if folder else None,
            },
            "ingredients": {"dockerfile": dockerfile},
        }
    )


def refuse_recipe(call: AzureCall, context: Context, name: str, version: str = "") -> JSONResponse:
    """`build_local` runs a script of Azure's, with conda or Docker, where the client is."""
    environments = context.services.environments
    environments.resolver.resolve(_reference(name, version), call.workspace.name)
    raise NotServed(
        f"`build_local` needs conda or Docker on your machine, and a recipe that torchyard does "
        f"not make: environment `{name}` is built on the server's machine",
        f"`environment.build(workspace)` builds it there; `yard environment export -n {name} "
        "--format dockerfile` or `--format conda` writes a file to build it from here",
    )


for _path in ("/environments/{name}", "/environments/{name}/versions/{version}"):
    for _how in ("image", "imageoncompute/{compute}"):
        routes.add(["POST"], f"{_path}/{_how}", needs(Permission.WRITE)(partial(begin)))
    routes.add(["GET"], f"{_path}/image", needs(Permission.READ)(partial(image_details)))
    routes.add(["POST"], f"{_path}/recipe", needs(Permission.READ)(partial(refuse_recipe)))


@routes.get("/builds/{hash}")
@needs(Permission.READ)
def status(call: AzureCall, context: Context, hash: str) -> JSONResponse:
    shown = context.builds.show(hash, 0)
    location, identity = _location(call, hash), call.identity
    query = signatures.sign(
        context.signing_key,
        _container(call.workspace.name),
        hash,
        "blob",
        "r",
        identity.user,
        identity.token_hash,
        context.services.clock.now(),
    )
    return JSONResponse(
        {
            "status": _STATUSES[shown["status"]],
            "location": location,
            "logUrl": f"{location}/log?{query}",
        }
    )


@routes.get("/builds/{hash}/log")
@needs(Permission.READ, signed=True)
def log(request: Request, context: Context, hash: str) -> PlainTextResponse:
    workspace = str(request.path_params["workspace"])
    token_hash = ""
    if "sig" in request.query_params:
        token_hash = signatures.read(
            context.signing_key,
            request.query_params,
            _container(workspace),
            hash,
            context.services.clock.now(),
        ).token_hash
    context.access.granted(request, Permission.READ, workspace, token_hash)
    return PlainTextResponse(_whole_log(context.builds, hash))


def _reference(name: str, version: str) -> str:
    return f"azureml:{name}:{version}" if version else f"azureml:{name}"


def _location(call: AzureCall, hash: str) -> str:
    return f"{call.base}/environment/v2.0{call.workspace_id}/builds/{hash}"


def _container(workspace: str) -> str:
    """What the signature of a log opens; no container of blobs has such a name."""
    return f"builds of {workspace}"


def _whole_log(builds: RequestedBuilds, hash: str) -> str:
    parts, offset = [], 0
    while True:
        shown = builds.show(hash, offset)
        parts.append(shown["log"])
        if shown["next_offset"] == offset or offset > _LONGEST_LOG_BYTES:
            break
        offset = shown["next_offset"]
    text = "".join(parts)
    if shown["error"]:
        text += f"\n{shown['error']}" + (f". Hint: {shown['hint']}" if shown["hint"] else "") + "\n"
    return text
