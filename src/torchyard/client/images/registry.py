"""Bring an image to a registry by the OCI distribution protocol.

Owns: the order of uploads, going on with a broken one, checking what the registry says it has.
Leaves: connections, tokens and who sees them to registry_connection.py, blobs to layout.py.
Always: a manifest is sent once all its blobs are there; a digest that the registry gives is
compared with ours, and after the last step the manifest is read back; memory holds one piece of a
blob.

Source: https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torchyard.base.errors import InvalidInput, TorchyardError, Unreachable
from torchyard.client.images.layout import Descriptor, Image, Layout
from torchyard.client.images.registry_connection import Answer, Connection, refused

_PIECE_BYTES = 8 << 20
_TRIES = 5
_FIRST_DELAY_S, _MOST_DELAY_S = 0.5, 15.0
_MANIFEST_MOST_BYTES = 4 << 20
_REFERENCE = re.compile(
    r"(?P<registry>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?)/"
    r"(?P<name>[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?",
    re.ASCII,
)
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)", re.ASCII)


class UploadFailed(TorchyardError):
    """The registry did not take the image, or does not have what it says."""

    code = "upload_failed"
    exit_code = 1


@dataclass(frozen=True)
class Reference:
    """`registry` is a host, maybe with a port."""

    registry: str
    name: str
    tag: str

    def with_tag(self, tag: str) -> Reference:
        """With this tag unless it has one."""
        return replace(self, tag=self.tag or tag)

    def __str__(self) -> str:
        return f"{self.registry}/{self.name}:{self.tag}"


def parse(text: str) -> Reference:
    """The tag is empty where the text has none.

    Raises:
        InvalidInput: it is not `REGISTRY/NAME[:TAG]`.
    """
    match = _REFERENCE.fullmatch(text)
    registry = match["registry"] if match else ""
    if match is None or not ("." in registry or ":" in registry or registry == "localhost"):
        raise InvalidInput(
            f"`{text}` is not a place in a registry",
            "write `REGISTRY/NAME:TAG` in lower case, as `registry.example.com/team/vision:3`",
        )
    return Reference(registry, match["name"], match["tag"] or "")


@dataclass(frozen=True)
class Pushed:
    """`there_bytes` is the size of the layers that the registry had already."""

    reference: Reference
    digest: str
    sent_bytes: int
    there_bytes: int


class Upload:
    """One image on its way to a registry.

    Args:
        count: is told of each piece that has arrived.
    """

    def __init__(
        self,
        connection: Connection,
        reference: Reference,
        count: Callable[[int], None] = lambda size_bytes: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._to = reference
        self._count = count
        self._sleep = sleep

    def run(self, layout: Layout, image: Image) -> Pushed:
        """
        Raises:
            NotAuthenticated, Forbidden: the registry wants somebody else.
            Unreachable: it does not answer.
            UploadFailed: it refuses a part, or has another content than it was sent.
        """
        sent = there = 0
        for blob in (*(layer.blob for layer in image.layers), image.config):
            if self._is_there(blob):
                there += blob.size_bytes
                self._count(blob.size_bytes)
            else:
                self._send_blob(layout, blob)
                sent += blob.size_bytes
        with layout.open(image.manifest) as file:
            content = file.read()
        self._send_manifest(image.manifest, content)
        return Pushed(self._to, image.manifest.digest, sent, there)

    def _is_there(self, blob: Descriptor) -> bool:
        request = f"the question for {blob.digest[:19]}"
        answer = self._persist("HEAD", f"{self._path}/blobs/{blob.digest}", request)
        if answer.status == 404:
            return False
        if answer.status != 200:
            raise refused(self._to.registry, answer, f"blob {blob.digest[:19]}")
        self._compare(answer, blob.digest)
        length = answer.headers.get("Content-Length", "")
        if length.isdecimal() and int(length) != blob.size_bytes:
            raise self._lies(f"that {blob.digest[:19]} has {length} bytes, not {blob.size_bytes}")
        return True

    def _send_blob(self, layout: Layout, blob: Descriptor) -> None:
        """Send it in pieces; after a failure go on where the registry says it is."""
        failures, location, offset, counted = 0, "", 0, 0
        while True:
            try:
                if not location:
                    location, offset = self._begin(blob), 0
                while offset < blob.size_bytes:
                    location, offset = self._send_piece(layout, blob, location, offset)
                    if offset > counted:
                        self._count(offset - counted)
                        failures, counted = 0, offset
                self._finish(blob, location)
                return
            except (Unreachable, _TryAgain) as error:
                failures += 1
                if failures == _TRIES:
                    raise UploadFailed(
                        f"{self._to.registry} failed {_TRIES} times at {blob.digest[:19]}, the "
                        f"last time: {error}",
                        "push again: what has arrived is not sent twice",
                    ) from error
                self._sleep(_delay_s(error, failures))
                location, offset = self._resume(location, offset, blob)

    def _begin(self, blob: Descriptor) -> str:
        answer = self._ask("POST", f"{self._path}/blobs/uploads/", b"")
        _try_again_if_busy(answer)
        if answer.status != 202:
            raise refused(self._to.registry, answer, f"an upload to `{self._to.name}`")
        return self._next(answer, "")

    def _send_piece(
        self, layout: Layout, blob: Descriptor, location: str, offset: int
    ) -> tuple[str, int]:
        with layout.open(blob) as file:
            file.seek(offset)
            piece = file.read(_PIECE_BYTES)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Range": f"{offset}-{offset + len(piece) - 1}",
        }
        answer = self._ask("PATCH", location, piece, headers)
        _try_again_if_busy(answer)
        if answer.status == 416:
            raise _TryAgain("it is at another place of the upload")
        if answer.status not in (201, 202, 204):
            raise refused(self._to.registry, answer, f"a piece of {blob.digest[:19]}")
        end = offset + len(piece)
        has = self._offset(answer, end)
        if not offset <= has <= end:
            raise self._lies(f"to have {has} bytes of an upload that was sent {end}")
        if has == offset:
            raise _TryAgain("it took nothing of a piece")
        return self._next(answer, location), has

    def _resume(self, location: str, offset: int, blob: Descriptor) -> tuple[str, int]:
        """Where to go on; an empty place is a new upload."""
        if not location:
            return "", 0
        try:
            answer = self._ask("GET", location)
        except Unreachable:
            return location, offset
        if answer.status not in (200, 202, 204):
            return "", 0
        has = self._offset(answer, 0)
        return (self._next(answer, location), has) if has <= blob.size_bytes else ("", 0)

    def _finish(self, blob: Descriptor, location: str) -> None:
        divider = "&" if "?" in location else "?"
        answer = self._ask("PUT", f"{location}{divider}digest={blob.digest}", b"")
        _try_again_if_busy(answer)
        if answer.status not in (201, 204):
            raise refused(self._to.registry, answer, f"blob {blob.digest[:19]}")
        self._compare(answer, blob.digest)
        if not self._is_there(blob):
            raise self._lies(f"to have taken {blob.digest[:19]}, and does not have it")

    def _send_manifest(self, manifest: Descriptor, content: bytes) -> None:
        path = f"{self._path}/manifests/{self._to.tag}"
        kind = {"Content-Type": manifest.media_type}
        answer = self._persist("PUT", path, "the manifest", content, kind)
        if answer.status not in (200, 201, 202):
            raise refused(self._to.registry, answer, f"the manifest of `{self._to}`")
        self._compare(answer, manifest.digest)
        kind = {"Accept": manifest.media_type}
        answer = self._persist("GET", path, "the manifest", headers=kind)
        if answer.status != 200:
            raise self._lies(f"to have taken `{self._to}`, and answers {answer.status} for it")
        if f"sha256:{hashlib.sha256(answer.body).hexdigest()}" != manifest.digest:
            raise self._lies(f"to have `{self._to}`, which has another content than was sent")

    def _persist(
        self,
        method: str,
        path: str,
        request: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """The answer to what may be asked twice; asked again while the registry fails."""
        failures = 0
        while True:
            try:
                answer = self._ask(method, path, body, headers)
                _try_again_if_busy(answer)
                return answer
            except (Unreachable, _TryAgain) as error:
                failures += 1
                if failures == _TRIES:
                    raise UploadFailed(
                        f"{self._to.registry} failed {_TRIES} times at {request}, the last time: "
                        f"{error}",
                        "push again: what has arrived is not sent twice",
                    ) from error
                self._sleep(_delay_s(error, failures))

    @property
    def _path(self) -> str:
        return f"/v2/{self._to.name}"

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        return self._connection.ask(method, path, body, headers or {}, self._to.name)

    def _compare(self, answer: Answer, digest: str) -> None:
        returned_digest = answer.headers.get("Docker-Content-Digest", digest)
        if returned_digest != digest:
            raise self._lies(f"that {digest[:19]} is {returned_digest[:80]!a}")

    def _next(self, answer: Answer, previous: str) -> str:
        location = answer.headers.get("Location", "") or previous
        if not location:
            raise self._lies("to have begun an upload, and not where")
        return self._connection.absolute(location)

    def _offset(self, answer: Answer, otherwise: int) -> int:
        match = _RANGE.fullmatch(answer.headers.get("Range", ""))
        if match is None:
            return otherwise
        # `0-0` is an upload without a byte at Docker's registry, and with one in the specification.
        return int(match[1]) + 1 if int(match[1][:19]) else 0

    def _lies(self, claim: str) -> UploadFailed:
        return UploadFailed(
            f"{self._to.registry} claims {claim}",
            "nothing of this image there can be relied on; ask those who run the registry",
        )


class _TryAgain(Exception):
    """The registry is busy, or failed for a moment; `delay_s` is what it asks for."""

    def __init__(self, message: str, delay_s: float = 0.0) -> None:
        super().__init__(message)
        self.delay_s = delay_s


def _try_again_if_busy(answer: Answer) -> None:
    if answer.status == 429 or answer.status >= 500:
        text = answer.headers.get("Retry-After", "")
        raise _TryAgain(f"status {answer.status}", float(text[:4]) if text.isdecimal() else 0.0)


def _delay_s(error: Any, failures: int) -> float:
    requested_delay_s = getattr(error, "delay_s", 0.0)
    return float(min(_MOST_DELAY_S, max(requested_delay_s, _FIRST_DELAY_S * 2 ** (failures - 1))))
