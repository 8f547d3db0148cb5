"""The artifact service, and the run history's window on it: files by origin, container and path.

Owns: its questions in both spellings (SDK v1 puts the verb first, the plug-in last), the JSON of
an artifact.
Leaves: what a path names to artifact_places.py, the bytes to the blob service that links lead to.
Always: an artifact has no row of its own: it is there when its file is.

Source: REST.md sections 5 and 6; the requests of azureml-mlflow 1.62 and azureml-core 1.61.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, StreamingResponse

from torchyard.azureml.blob import artifact_places as places
from torchyard.azureml.blob.artifact_places import RUN_MARK, RUNS, Place
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute
from torchyard.base import files
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.datastores import ARTIFACT_STORE
from torchyard.data.types import Entry
from torchyard.jobs.files.run_files import RunFiles
from torchyard.jobs.services import Services

_HISTORY = ("/history/experiments/{experiment}", "/history/experimentids/{experiment}")
# SDK v1 asks for the links of a run's logs so, and its notebook widget opens them by urllib, which
# can't do an account in the host's place.
_LOGS = ("user_logs", "system_logs")


class Link(Protocol):
    """A signed link to a file of a datastore, in the form that Azure's clients take for one, or
    (`host_style` off) for any program that opens URLs; `by_v1` as in links.py.
    """

    def __call__(
        self,
        call: Call,
        datastore: str,
        path: str,
        write: bool = False,
        *,
        host_style: bool = True,
        by_v1: bool = False,
    ) -> str: ...


def service(services: Services, link: Link) -> Callable[[Caller], APIRouter]:
    """What app.py mounts."""

    def routes(caller: Caller) -> APIRouter:
        made = APIRouter(route_class=AzureRoute)
        asked = _Artifacts(services, link)
        _of_runs(made, caller, asked)
        _of_containers(made, caller, asked)
        return made

    return routes


class _Artifacts:
    """The answers, whatever the request's spelling."""

    def __init__(self, services: Services, link: Link) -> None:
        self._services = services
        self._link = link

    def list(self, call: Call, origin: str, container: str, path: str = "") -> JSONResponse:
        place = self._place(call, origin, container, path)
        found = [_artifact(place, one.path) for one in self._entries(call, place, path)]
        return JSONResponse({"value": found, "continuationToken": None, "nextLink": None})

    def links(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        place = self._place(call, origin, container, path)
        host_style = path.strip("/") not in _LOGS
        found = [
            self._information(call, place, one.path, host_style=host_style)
            for one in self._entries(call, place, path)
        ]
        return JSONResponse({"value": found, "continuationToken": None, "nextLink": None})

    def metadata(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        place = self._there(call, origin, container, path)
        return JSONResponse(_artifact(place, path))

    def information(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        place = self._there(call, origin, container, path)
        return JSONResponse(self._information(call, place, path))

    def uri(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        place = self._there(call, origin, container, path)
        return JSONResponse(self._link(call, place.datastore, place.stored(path)))

    def content(self, call: Call, origin: str, container: str, path: str) -> StreamingResponse:
        place = self._there(call, origin, container, path)
        root = self._services.datastores.root(call.workspace.name, place.datastore)
        stored = place.stored(path)
        file = files.inside(root, stored)
        if place.datastore == ARTIFACT_STORE:
            file = RunFiles(self._services, call.workspace.name).local(stored)
        opened = file.open("rb")
        size = {"content-length": str(file.stat().st_size)}
        return StreamingResponse(files.chunks(opened), 200, size, "application/octet-stream")

    def write_links(
        self, call: Call, origin: str, container: str, by_v1: bool = False
    ) -> JSONResponse:
        """Where to write the files that the body names; they are there once they are written."""
        made, links = {}, {}
        for path in _paths(call):
            place = places.find(
                self._services, call.workspace.name, origin, container, path, call.identity
            )
            made[path] = _artifact(place, path)
            links[path] = self._information(call, place, path, write=True, by_v1=by_v1)
        return JSONResponse({"artifacts": made, "artifactContentInformation": links, "errors": {}})

    def write_link(self, call: Call, origin: str, container: str, path: str) -> JSONResponse:
        """The same for one file."""
        place = places.find(
            self._services, call.workspace.name, origin, container, path, call.identity
        )
        return JSONResponse(self._information(call, place, path, write=True, by_v1=True))

    def _place(self, call: Call, origin: str, container: str, path: str) -> Place:
        return places.find(self._services, call.workspace.name, origin, container, path)

    def _entries(self, call: Call, place: Place, path: str) -> Iterable[Entry]:
        return places.entries(self._services, call.workspace.name, place, path)

    def _there(self, call: Call, origin: str, container: str, path: str) -> Place:
        """The place of a file that exists.

        Raises:
            NotFound: it does not.
        """
        place = self._place(call, origin, container, path)
        if [one.path for one in self._entries(call, place, path)] != [path.strip("/")]:
            raise NotFound(f"`{origin}/{container}` has no file `{path[:200]}`")
        return place

    def _information(
        self,
        call: Call,
        place: Place,
        path: str,
        write: bool = False,
        host_style: bool = True,
        by_v1: bool = False,
    ) -> dict[str, Any]:
        link = self._link(
            call, place.datastore, place.stored(path), write, host_style=host_style, by_v1=by_v1
        )
        return {
            "contentUri": link,
            "origin": place.origin,
            "container": place.container,
            "path": path,
            "tags": {},
        }


def _of_runs(routes: APIRouter, caller: Caller, asked: _Artifacts) -> None:
    the_call = Annotated[Call, Depends(caller)]
    answers = {
        "": lambda call, run, path: asked.list(call, RUNS, run),
        "/path": lambda call, run, path: asked.list(call, RUNS, run, path),
        "/metadata": lambda call, run, path: asked.metadata(call, RUNS, run, path),
        "/contentinfo": lambda call, run, path: asked.information(call, RUNS, run, path),
        "/artifacturi": lambda call, run, path: asked.uri(call, RUNS, run, path),
        "/prefix/contentinfo": lambda call, run, path: asked.links(call, RUNS, run, path),
        "/content": lambda call, run, path: asked.content(call, RUNS, run, path),
    }

    def mount(top: str, verb: str, answer: Callable[[Call, str, str], Any]) -> None:
        @routes.get(f"{top}/runs/{{run}}/artifacts{verb}", response_model=None)
        def read(call: the_call, run: str, path: str = "") -> Any:
            return answer(call, RUN_MARK + run, path)

    for top in _HISTORY:
        for verb, answer in answers.items():
            mount(top, verb, answer)

        @routes.post(f"{top}/runs/{{run}}/artifacts/batch/metadata")
        def write(call: the_call, run: str) -> JSONResponse:
            return asked.write_links(call, RUNS, RUN_MARK + run)


def _of_containers(routes: APIRouter, caller: Caller, asked: _Artifacts) -> None:
    the_call = Annotated[Call, Depends(caller)]
    top, named = "/artifact/artifacts", "{origin}/{container}"
    answers = {
        "metadata": asked.metadata,
        "contentinfo": asked.information,
        "prefix/contentinfo": asked.links,
        "content": asked.content,
        "write": asked.write_link,
    }

    def mount(verb: str, answer: Callable[[Call, str, str, str], Any]) -> None:
        @routes.get(f"{top}/{verb}/{named}/{{path:path}}", response_model=None)
        def of_v1(call: the_call, origin: str, container: str, path: str) -> Any:
            return answer(call, origin, container, path)

        @routes.get(f"{top}/{named}/{verb}", response_model=None)
        def of_plugin(call: the_call, origin: str, container: str, path: str = "") -> Any:
            return answer(call, origin, container, path)

    for verb, answer in answers.items():
        mount(verb, answer)

    # `run.download_files()` asks for a prefix that is empty.
    @routes.get(f"{top}/prefix/contentinfo/{named}")
    def all_links(call: the_call, origin: str, container: str) -> JSONResponse:
        return asked.links(call, origin, container, "")

    @routes.post(f"{top}/batch/metadata/{named}")
    def write_of_v1(call: the_call, origin: str, container: str) -> JSONResponse:
        return asked.write_links(call, origin, container, by_v1=True)

    @routes.post(f"{top}/{named}/batch/metadata")
    def write_of_plugin(call: the_call, origin: str, container: str) -> JSONResponse:
        return asked.write_links(call, origin, container)

    @routes.get(f"{top}/{named}")
    def list_container(call: the_call, origin: str, container: str) -> JSONResponse:
        return asked.list(call, origin, container)

    @routes.get(f"{top}/{named}/{{path:path}}")
    def one(call: the_call, origin: str, container: str, path: str) -> JSONResponse:
        return asked.metadata(call, origin, container, path)


def _artifact(place: Place, path: str) -> dict[str, Any]:
    return {
        "artifactId": f"{place.origin}/{place.container}/{path}",
        "origin": place.origin,
        "container": place.container,
        "path": path,
        "etag": None,
        "createdTime": None,
        "dataPath": {"dataStoreName": place.datastore, "relativePath": place.stored(path)},
        "tags": {},
    }


def _paths(call: Call) -> list[str]:
    asked = call.document.get("paths")
    if not isinstance(asked, list):
        raise InvalidInput("the request's `paths` is no list", at=["paths"])
    found = [one.get("path") if isinstance(one, dict) else None for one in asked]
    if not all(isinstance(one, str) and one for one in found):
        raise InvalidInput("each of the request's `paths` needs a `path`", at=["paths"])
    return [str(one) for one in found]
