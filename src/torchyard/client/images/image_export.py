"""Make an OCI image of an environment: ask the server for its layers, write them, push them.

Owns: the order of the steps, the image's own name, progress.
Leaves: the layout on the disk to layout.py, registries to push.py, what is in a layer to the
server.
Always: a layer is hashed as it comes and kept nowhere else; nothing is pushed before all layers are
whole; an image that was written stays when its push fails.
"""

from __future__ import annotations

import http.client
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, NotFound, Unreachable
from torchyard.base.http import Transport
from torchyard.client.images import layout as layouts
from torchyard.client.images import push
from torchyard.client.images.exported_image import ExportedImage
from torchyard.client.images.layout import FolderLayout, Image, Layer, Layout
from torchyard.client.images.steps import Steps
from torchyard.shared.sizes import size_text

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
        push: `REGISTRY/NAME[:TAG]`; empty to write only.
        plain_http: push to a registry without TLS.
        base: an image that the server's engine puts the environment over; empty for the machine's
            own files.
    """

    environment: str | Mapping[str, Any]
    target: Path | None = None
    push: str = ""
    plain_http: bool = False
    base: str = ""
    overwrite: bool = False

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
    if request.target is None and not request.push:
        raise InvalidInput("the image has no destination", "name a file, a folder or a registry")
    if request.target is not None:
        layouts.check_target(request.target, request.overwrite)
    to = push.parse(request.push) if request.push else None
    if to is not None:
        push.skopeo()
    # The server looks through all files of a layer before it sends the first.
    with closing(transport.twin(SILENCE_S)) as transport:
        plan = plan_of(transport, path, request, build)
        for notice in plan["notices"]:
            steps.note(notice)
        name = local_name(plan["name"], plan["version"])
        to = to.with_tag(_tag(plan["version"])) if to is not None else None
        with _layout(request) as layout:
            image = _write(transport, path, request, plan, layout, name, steps)
            if to is not None and request.target is None:
                _push(layout.path, to, request, image, steps)
    if to is not None and request.target is not None:
        # The written image stays where it can't be pushed.
        _push(request.target, to, request, image, steps)
    return _exported(request, plan, name, image, str(to or ""))


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
            f"layer {layer.name}: {size_text(size_bytes)}, "
            f"{size_text(layer.blob.size_bytes)} compressed, {layer.blob.digest[:19]}"
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
    layout: Path, to: push.Reference, request: ImageRequest, image: Image, steps: Steps
) -> None:
    steps.begin(f"push to {to.registry}", 0)
    push.run(layout, to, request.plain_http)
    steps.end(f"pushed {to}: {image.manifest.digest}")
