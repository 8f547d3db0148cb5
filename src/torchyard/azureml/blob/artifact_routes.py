"""The artifact service, and the same in the run history: files by origin, container and path.

Owns: its routes in both spellings (SDK v1 puts the operation first, the plug-in last), the JSON of
an artifact.
Leaves: what a path names to artifact_places.py, the content to the blob service that links lead to.
Always: an artifact has no row in the database: it exists when its file does.

Source: REST.md sections 5 and 6; the requests of azureml-mlflow 1.62 and azureml-core 1.61.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.responses import JSONResponse

from torchyard.azureml.blob import artifact_places as places
from torchyard.azureml.blob.artifact_places import RUN_MARK, RUNS, ContainerFolder
from torchyard.azureml.blob.links import Links, links_of
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.context import context_of
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.datastores import ARTIFACT_STORE
from torchyard.data.types import Entry
from torchyard.jobs.files.run_files import RunFiles
from torchyard.jobs.services import FileServices
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

# SDK v1 requests the links of a run's logs by these folders, and its notebook widget opens them by
# urllib, which doesn't support an account in the place of the host.
_LOGS = ("user_logs", "system_logs")


class Artifacts:
    """What the routes do, whatever their spelling."""

    def __init__(self, services: FileServices, links: Links) -> None:
        self._services = services
        self._links = links

    def list_all(self, call: Call, origin: str, container: str, path: str = "") -> JSONResponse:
        """All of a container, whatever the path."""
        return self.list(call, origin, container)

    def list(self, call: Call, origin: str, container: str, path: str = "") -> JSONResponse:
        value = [
            _artifact(location, entry.path)
            for location in self._places(call, origin, container, path)
            for entry in self._entries(call, location, path)
        ]
        return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})

    def links(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        host_style = path.strip("/") not in _LOGS
        value = [
            self._information(call, location, entry.path, host_style=host_style)
            for location in self._places(call, origin, container, path)
            for entry in self._entries(call, location, path)
        ]
        return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})

    def metadata(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        location = self._existing(call, origin, container, path)
        return JSONResponse(_artifact(location, path))

    def information(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        location = self._existing(call, origin, container, path)
        return JSONResponse(self._information(call, location, path))

    def uri(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        location = self._existing(call, origin, container, path)
        return JSONResponse(self._links.url(call, location.datastore, location.stored(path)))

    def content(self, call: Call, origin: str, container: str, path: str) -> OpenFileResponse:
        location = self._existing(call, origin, container, path)
        workspace, stored = call.workspace.name, location.stored(path)
        if location.datastore == ARTIFACT_STORE:
            file = RunFiles(self._services, workspace).local(stored)
        else:
            file = self._services.datastores.file(workspace, location.datastore, stored)
        return OpenFileResponse(file, media_type="application/octet-stream")

    def write_links(
        self, call: Call, origin: str, container: str, by_v1: bool = False
    ) -> JSONResponse:
        """Links for writing the files that the body names."""
        artifacts, links = {}, {}
        for path in _paths(call):
            location = places.find(
                self._services, call.workspace.name, origin, container, path, call.identity
            )
            artifacts[path] = _artifact(location, path)
            links[path] = self._information(call, location, path, write=True, by_v1=by_v1)
        return JSONResponse(
            {"artifacts": artifacts, "artifactContentInformation": links, "errors": {}}
        )

    def write_link(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        """A link for writing one file."""
        location = places.find(
            self._services, call.workspace.name, origin, container, path, call.identity
        )
        return JSONResponse(self._information(call, location, path, write=True, by_v1=True))

    def _find_location(self, call: Call, origin: str, container: str, path: str) -> ContainerFolder:
        return places.find(self._services, call.workspace.name, origin, container, path)

    def _places(
        self, call: Call, origin: str, container: str, path: str
    ) -> Sequence[ContainerFolder]:
        return places.find_all(self._services, call.workspace.name, origin, container, path)

    def _entries(self, call: Call, location: ContainerFolder, path: str) -> Iterable[Entry]:
        return places.entries(self._services, call.workspace.name, location, path)

    def _existing(self, call: Call, origin: str, container: str, path: str) -> ContainerFolder:
        """The place of a file that exists.

        Raises:
            NotFound: it does not.
        """
        location = self._find_location(call, origin, container, path)
        if [entry.path for entry in self._entries(call, location, path)] != [path.strip("/")]:
            raise NotFound(f"`{origin}/{container}` has no file `{path[:200]}`")
        return location

    def _information(
        self,
        call: Call,
        location: ContainerFolder,
        path: str,
        write: bool = False,
        host_style: bool = True,
        by_v1: bool = False,
    ) -> dict[str, Any]:
        link = self._links.url(
            call,
            location.datastore,
            location.stored(path),
            write,
            host_style=host_style,
            by_v1=by_v1,
        )
        return {
            "contentUri": link,
            "origin": location.origin,
            "container": location.container,
            "path": path,
            "tags": {},
        }


async def _artifacts(request: Request) -> Artifacts:
    context = context_of(request)
    return Artifacts(context.services, links_of(context))


RequestArtifacts = Annotated[Artifacts, Depends(_artifacts)]
Read = Callable[[Artifacts, Call, str, str, str], Response]

routes = RouteTable()

_BY_EXPERIMENT = ("/history/experiments/{experiment}", "/history/experimentids/{experiment}")
_OF_RUN = {
    "": Artifacts.list_all,
    "/path": Artifacts.list,
    "/metadata": Artifacts.metadata,
    "/contentinfo": Artifacts.information,
    "/artifacturi": Artifacts.uri,
    "/prefix/contentinfo": Artifacts.links,
    "/content": Artifacts.content,
}
# Clients ask for 50 at once.
_MOST_PATHS = 1000
_TOP, _CONTAINER = "/artifact/artifacts", "{origin}/{container}"
_OF_CONTAINER = {
    "metadata": (Permission.READ, Artifacts.metadata),
    "contentinfo": (Permission.READ, Artifacts.information),
    "prefix/contentinfo": (Permission.READ, Artifacts.links),
    "content": (Permission.READ, Artifacts.content),
    "write": (Permission.LOG, Artifacts.write_link),
}


def _read_in_run(
    read: Read, artifacts: RequestArtifacts, call: AzureCall, run: str, path: str = ""
) -> Response:
    return read(artifacts, call, RUNS, RUN_MARK + run, path)


def _read_in_container(
    read: Read,
    artifacts: RequestArtifacts,
    call: AzureCall,
    origin: str,
    container: str,
    path: str = "",
) -> Response:
    return read(artifacts, call, origin, container, path)


def _read_by_path(
    read: Read,
    artifacts: RequestArtifacts,
    call: AzureCall,
    origin: str,
    container: str,
    path: str,
) -> Response:
    return read(artifacts, call, origin, container, path)


for _top in _BY_EXPERIMENT:
    for _name, _read in _OF_RUN.items():
        _endpoint = needs(Permission.READ)(partial(_read_in_run, _read))
        _path = f"{_top}/runs/{{run}}/artifacts{_name}"
        routes.add(["GET"], _path, _endpoint)
        if _name:
            # As azureml-core before 1.42 asks, which has the file in the path.
            routes.add(["GET"], f"{_path}/{{path:path}}", _endpoint)
for _name, (_permission, _read) in _OF_CONTAINER.items():
    _declare = needs(_permission)
    _by_path, _by_query = partial(_read_by_path, _read), partial(_read_in_container, _read)
    routes.add(["GET"], f"{_TOP}/{_name}/{_CONTAINER}/{{path:path}}", _declare(_by_path))
    routes.add(["GET"], f"{_TOP}/{_CONTAINER}/{_name}", _declare(_by_query))


@routes.post(*(f"{top}/runs/{{run}}/artifacts/batch/metadata" for top in _BY_EXPERIMENT))
@needs(Permission.LOG)
def write_in_run(artifacts: RequestArtifacts, call: AzureCall, run: str) -> JSONResponse:
    return artifacts.write_links(call, RUNS, RUN_MARK + run, by_v1=True)


# `run.download_files()` requests an empty prefix.
@routes.get(f"{_TOP}/prefix/contentinfo/{_CONTAINER}")
@needs(Permission.READ)
def link_all(
    artifacts: RequestArtifacts, call: AzureCall, origin: str, container: str
) -> JSONResponse:
    return artifacts.links(call, origin, container, "")


@routes.post(f"{_TOP}/batch/metadata/{_CONTAINER}")
@needs(Permission.LOG)
def write_by_v1(
    artifacts: RequestArtifacts, call: AzureCall, origin: str, container: str
) -> JSONResponse:
    return artifacts.write_links(call, origin, container, by_v1=True)


@routes.post(f"{_TOP}/{_CONTAINER}/batch/metadata")
@needs(Permission.LOG)
def write_by_plugin(
    artifacts: RequestArtifacts, call: AzureCall, origin: str, container: str
) -> JSONResponse:
    return artifacts.write_links(call, origin, container)


@routes.get(f"{_TOP}/{_CONTAINER}")
@needs(Permission.READ)
def list_container(
    artifacts: RequestArtifacts, call: AzureCall, origin: str, container: str
) -> JSONResponse:
    return artifacts.list(call, origin, container)


@routes.get(f"{_TOP}/{_CONTAINER}/{{path:path}}")
@needs(Permission.READ)
def get_artifact(
    artifacts: RequestArtifacts, call: AzureCall, origin: str, container: str, path: str
) -> JSONResponse:
    return artifacts.metadata(call, origin, container, path)


def _artifact(location: ContainerFolder, path: str) -> dict[str, Any]:
    return {
        "artifactId": f"{location.origin}/{location.container}/{path}",
        "origin": location.origin,
        "container": location.container,
        "path": path,
        "etag": None,
        "createdTime": None,
        # azureml-core reads `datastore_name` of it, which its own class for it lacks.
        "dataPath": None,
        "tags": {},
    }


def _paths(call: Call) -> list[str]:
    items = call.document.get("paths")
    if not isinstance(items, list):
        raise InvalidInput("the request's `paths` is not a list", at=["paths"])
    if len(items) > _MOST_PATHS:
        raise InvalidInput(
            f"`paths` has {len(items)} entries; the limit is {_MOST_PATHS}",
            "ask in several requests",
            at=["paths"],
        )
    paths = [item.get("path") if isinstance(item, dict) else None for item in items]
    if not all(isinstance(path, str) and path for path in paths):
        raise InvalidInput("each of the request's `paths` needs a `path`", at=["paths"])
    return [str(path) for path in paths]
