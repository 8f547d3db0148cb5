"""Make an OCI image of an environment: ask the server for its layers, write them, push them.

Owns: the order of the steps, the image's own name, progress.
Leaves: the layout on the disk to layout.py, registries to registry.py, what is in a layer to the
server.
Always: a layer is hashed as it comes and kept nowhere else; nothing is pushed before all layers are
whole; an image that was written stays when its push fails.
"""

from __future__ import annotations

import http.client
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, NotFound, Unreachable
from torchyard.base.http import Transport
from torchyard.client.images import layout as layouts
from torchyard.client.images import registry
from torchyard.client.images.exported_image import ExportedImage, PushTarget
from torchyard.client.images.layout import FolderLayout, Image, Layer, Layout
from torchyard.client.images.registry import Reference, Upload
from torchyard.client.images.registry_connection import Connection
from torchyard.client.images.steps import Steps, megabytes

_READ_BYTES = 1 << 20
SILENCE_S = 600.0
_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")
_NOT_IN_TAG = re.compile(r"[^A-Za-z0-9_.-]+")

Json = dict[str, Any]


@dataclass(frozen=True)
class ImageRequest:
    """What to make of which environment.

    Args:
        environment: a reference, or an inline definition.
        target: a `.tar` file or a folder; None to push only.
        push: where to push it; None to write only.
        variables: the process environment, for a push.
        base: an image that the server's engine puts the environment over; empty for the machine's
            own files.
    """

    environment: str | Mapping[str, Any]
    target: Path | None = None
    push: PushTarget | None = None
    base: str = ""
    overwrite: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> Json:
        return {"environment": self.environment, "base": self.base}


def make(
    transport: Transport,
    path: str,
    request: ImageRequest,
    build: Callable[[Json], None],
    steps: Steps,
) -> ExportedImage:
    """
    Args:
        path: the server's path of environments.
        build: builds what the body of the request names.

    Raises:
        Conflict, InvalidInput: the target is not one, or the environment can't be an image.
        DiskFull: there is no space for it; nothing is left of it.
    """
    if request.target is None and request.push is None:
        raise InvalidInput("the image has no destination", "name a file, a folder or a registry")
    if request.target is not None:
        layouts.check_target(request.target, request.overwrite)
    with ExitStack() as stack:
        connection = None
        if request.push is not None:  # what is wrong with it is known before minutes of work
            to = registry.parse(request.push.image)
            access = request.push.access(to.registry, request.variables)
            connection = stack.enter_context(closing(Connection(to.registry, access)))
            connection.check(to.name)
        # The server looks through all files of a layer before it sends the first.
        transport = stack.enter_context(closing(transport.twin(SILENCE_S)))
        plan = plan_of(transport, path, request, build)
        for notice in plan["notices"]:
            steps.note(notice)
        name = local_name(plan["name"], plan["version"])
        with _layout(request) as layout:
            image = _write(transport, path, request, plan, layout, name, steps)
            if connection is not None and request.target is None:
                to = to.with_tag(_tag(plan["version"]))
                _push(connection, to, layout, image, steps)
        if connection is not None and request.target is not None:
            # The written image stays where it can't be pushed.
            to = to.with_tag(_tag(plan["version"]))
            _push(connection, to, layout, image, steps)
    return _exported(request, plan, name, image, str(to) if connection is not None else "")


def plan_of(
    transport: Transport, path: str, request: ImageRequest, build: Callable[[Json], None]
) -> Json:
    """The server's plan of the image, after a build where none is there."""
    plan: Json = transport.post(f"{path}/image", request.body)
    if not plan["is_built"]:
        build(request.body)
        plan = transport.post(f"{path}/image", request.body)
    if not plan["is_built"]:
        raise NotFound(f"environment `{plan['name']}` is not built", "export it again")
    return plan


def _exported(
    request: ImageRequest, plan: Json, name: str, image: Image, pushed: str
) -> ExportedImage:
    labels = plan["config"]["Labels"]
    raw = {
        "name": name,
        "path": str(request.target) if request.target is not None else None,
        "digest": image.manifest.digest,
        "size_bytes": image.size_bytes,
        "layers": [{"name": layer.name, **layer.blob.to_json()} for layer in image.layers],
        "labels": labels,
        "pushed": pushed,
    }
    return ExportedImage(
        raw=raw,
        name=name,
        path=request.target,
        digest=image.manifest.digest,
        size_bytes=image.size_bytes,
        labels=labels,
        pushed=pushed,
    )


def local_name(name: str, version: str) -> str:
    """What podman calls the image once it is loaded."""
    words = _NOT_IN_NAME.sub("-", name.lower()).strip("-")
    return f"localhost/{words or 'environment'}:{_tag(version)}"


def _tag(version: str) -> str:
    return _NOT_IN_TAG.sub("-", version)[:128].lstrip(".-") or "latest"


@contextmanager
def _layout(request: ImageRequest) -> Iterator[Layout]:
    if request.target is not None:
        with layouts.written(request.target, request.overwrite) as layout:
            yield layout
        return
    with tempfile.TemporaryDirectory(prefix="torchyard-image-") as folder:
        with layouts.enough_space(Path(folder)):
            yield FolderLayout(Path(folder))


def _write(
    transport: Transport,
    path: str,
    request: ImageRequest,
    plan: Json,
    layout: Layout,
    name: str,
    steps: Steps,
) -> Image:
    layers: list[Layer] = []
    for part in plan["layers"]:
        body = {**request.body, "hash": plan["hash"], "layer": part}
        with transport.stream(f"{path}/image/layer", body=body) as answer:
            size_bytes = int(answer.headers.get("X-Torchyard-Files-Bytes") or 0)
            steps.begin(f"layer {part}", size_bytes)
            layer = layouts.add_layer(layout, part, _blocks(answer, part, steps))
        layers.append(layer)
        steps.end(
            f"layer {layer.name}: {megabytes(size_bytes)}, "
            f"{megabytes(layer.blob.size_bytes)} compressed, {layer.blob.digest[:19]}"
        )
    return layouts.complete(layout, layers, plan["architecture"], plan["config"], name)


def _blocks(answer: http.client.HTTPResponse, name: str, steps: Steps) -> Iterator[bytes]:
    """
    Raises:
        Unreachable: the layer was interrupted.
    """
    try:
        while block := answer.read(_READ_BYTES):
            steps.add(len(block))
            yield block
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise Unreachable(
            f"layer `{name}` was interrupted while it was read from the server",
            "export the image again; the server's log says why, `yard server logs`",
        ) from error


def _push(
    connection: Connection, to: Reference, layout: Layout, image: Image, steps: Steps
) -> None:
    steps.begin(f"push to {to.registry}", image.size_bytes)
    pushed = Upload(connection, to, steps.add).run(layout, image)
    steps.end(
        f"pushed {to}: {megabytes(pushed.sent_bytes)} sent, {megabytes(pushed.there_bytes)} there "
        f"already, {pushed.digest}"
    )
