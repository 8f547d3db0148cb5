"""HTTP: many small files in one answer; files as descriptors for a program of this machine.

Owns: `POST …/bundle`, which names files as their own routes do, and its frames.
Leaves: large files to those routes; which files there are to the listings.
Always: every file is found before the first byte is sent, so an error is an error and not half an
answer; frames come in the order asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Body
from fastapi.responses import StreamingResponse

from torchyard.base import files
from torchyard.base.dependencies import HandoverOf
from torchyard.base.errors import InvalidInput, LimitExceeded, NotFound
from torchyard.base.files import OpenFile, Readable
from torchyard.data import actions as data
from torchyard.data import assets
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.services import FileServices, ServicesOf
from torchyard.models import actions as models
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

_SOURCE = re.compile(
    r"^(?P<folder>jobs/[^/]+/files|jobs/[^/]+/outputs/[^/]+"
    r"|(?:data|models)/[^/]+/versions/[^/]+/files)/(?P<path>.+)\Z"
)
_MOST_FILES = 1000
_MOST_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20

Find = Callable[[str], Readable]

router = APIRouter(prefix="/v1/workspaces/{workspace}", tags=["bundles"], route_class=GuardedRoute)


@router.post("/bundle")
@needs(Permission.READ)
def bundle(
    services: ServicesOf, workspace: str, sources: Annotated[list[str], Body(embed=True)]
) -> StreamingResponse:
    """`<size in bytes>\\n<bytes>` for each of `sources`, paths of files' own routes below
    the workspace: `data/digits/versions/1/files/a.bin`.
    """
    found = find_all(services, workspace, sources)
    return StreamingResponse(_blocks(found), media_type="application/x-torchyard-bundle")


@router.post("/bundle/handed")
@needs(Permission.READ)
def hand_out(
    services: ServicesOf,
    handover: HandoverOf,
    workspace: str,
    ticket: Annotated[str, Body()],
    source: Annotated[str, Body()],
) -> dict[str, Any]:
    """Hand the file `source`, named as above, out at the server's socket for files."""
    with closing(_found(services, workspace, [source])) as found:
        with files.reading(next(found)) as opened:
            handover.give(ticket, opened.fileno())
    return {}


def find_all(services: FileServices, workspace: str, sources: Sequence[str]) -> list[Path | bytes]:
    """The path of each file, or the content of one where others may put links.

    Raises:
        InvalidInput: a source is not the path of a file.
        LimitExceeded: too many files, or too large ones.
        NotFound: one does not exist.
    """
    if len(sources) > _MOST_FILES:
        raise LimitExceeded(
            f"{len(sources)} files are too many for one request", f"ask for at most {_MOST_FILES}"
        )
    found: list[Path | bytes] = []
    size_bytes = 0
    with closing(_found(services, workspace, sources)) as readable:
        for file in readable:
            size_bytes += files.size_bytes(file)
            if size_bytes > _MOST_BYTES:
                raise LimitExceeded(
                    f"{size_bytes} bytes are too many for one request; the limit is {_MOST_BYTES}",
                    "download large files by their own routes",
                )
            found.append(_content(file) if isinstance(file, OpenFile) else file)
    return found


def _found(
    services: FileServices, workspace: str, sources: Sequence[str]
) -> Generator[Readable, None, None]:
    """The files one after another, each folder open as long as its files follow each other."""
    folder, find = "", None
    with ExitStack() as stack:
        for source in sources:
            match = _SOURCE.match(source)
            if match is None:
                raise InvalidInput(f"`{source}` is not the path of a file in a workspace")
            if find is None or match["folder"] != folder:
                stack.close()
                folder = match["folder"]
                parts = [unquote(part) for part in folder.split("/")]
                find = _open(services, workspace, parts, stack)
            yield find(unquote(match["path"]))


def _open(services: FileServices, workspace: str, parts: Sequence[str], stack: ExitStack) -> Find:
    """What finds files below `parts`, a folder of `_SOURCE`; looked up once for all of them.

    Args:
        stack: is given what it keeps open for them.
    """
    kind, name = parts[0], parts[1]
    if kind == "jobs":
        job = actions.get(services, workspace, name)
        if parts[2] == "files":
            return lambda path: artifacts.file(services, job, path)
        return lambda path: artifacts.output_file(services, job, parts[3], path)
    if kind == "models":
        model = models.get(services.db, workspace, name, parts[3])
        return lambda path: models.file(services.datastores, model, path)
    asset = assets.get(services.db, workspace, name, parts[3])
    location = data.locate(services.db, services.datastores, workspace, asset.uri)
    if asset.type == "uri_file":
        only = data.files_of(services.db, services.datastores, asset)[0].path

        def find(path: str) -> Readable:
            if path != only:
                raise NotFound(f"data `{asset.name}:{asset.version}` has no file `{path}`")
            return services.fetcher.file(workspace, location, "")

        return find
    return stack.enter_context(services.fetcher.finding(workspace, location))


def _content(file: Readable) -> bytes:
    with files.reading(file) as opened:
        # As much as there is: room for the most is made before anything is read.
        return opened.read(min(os.fstat(opened.fileno()).st_size, _MOST_BYTES))


def _blocks(found: Sequence[Path | bytes]) -> Iterator[bytes]:
    """The frames, gathered: each block that is yielded costs a change of threads."""
    pieces: list[Any] = []
    size_bytes = 0
    for file in found:
        content = file if isinstance(file, bytes) else _content(file)
        pieces += (b"%d\n" % len(content), content)
        size_bytes += len(content)
        if size_bytes >= _BLOCK_BYTES:
            yield b"".join(pieces)
            pieces, size_bytes = [], 0
    yield b"".join(pieces)
