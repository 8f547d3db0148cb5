"""An OCI image layout on this machine's disk, as a folder or as a tar file.

Owns: blobs by digest, the configuration, manifest and index, the temporary name and the rename.
Leaves: what the layers hold to the server, registries to push.py.
Always: the final name appears complete, by one rename, or not at all; a layer is written as it
comes, and memory holds one block of it; the same layers give the same digests.

Source: https://github.com/opencontainers/image-spec (image-layout.md, config.md, manifest.md).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from torchyard.base import disk
from torchyard.base.errors import Conflict, DiskFull, InvalidInput

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
INDEX = "application/vnd.oci.image.index.v1+json"
# A third of the time of the usual 6, and a tenth more bytes.
_LEVEL = 1
_GZIP = 16 + zlib.MAX_WBITS
_TAR_BLOCK = 512
_TIME_S = 315532800
_DRAFT = re.compile(r"\.(?P<name>.+)\.exporting-(?P<process>\d+)")


@dataclass(frozen=True)
class Descriptor:
    """A blob by its content. `digest` is `sha256:…`."""

    media_type: str
    digest: str
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes}


@dataclass(frozen=True)
class Layer:
    """`diff_id` is the digest of the tar before compression."""

    name: str
    blob: Descriptor
    diff_id: str


@dataclass(frozen=True)
class Image:
    """A whole image: its blobs are its layers', its configuration and its manifest."""

    config: Descriptor
    layers: tuple[Layer, ...]
    manifest: Descriptor

    @property
    def size_bytes(self) -> int:
        return sum(layer.blob.size_bytes for layer in self.layers)


class Layout(Protocol):
    """Where blobs are kept while an image is made."""

    path: Path
    """Where it is on the disk; another one after a rename."""

    def add(self, media_type: str, blocks: Iterable[bytes]) -> Descriptor: ...

    def open(self, blob: Descriptor) -> IO[bytes]: ...

    def put(self, name: str, content: bytes) -> None: ...


class FolderLayout:
    """A layout as a folder, which exists and is empty."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._blobs.mkdir(parents=True)

    @property
    def _blobs(self) -> Path:
        return self.path / "blobs" / "sha256"

    def add(self, media_type: str, blocks: Iterable[bytes]) -> Descriptor:
        draft = self._blobs / ".part"
        digest, size = hashlib.sha256(), 0
        with open(draft, "wb") as file:
            for block in blocks:
                digest.update(block)
                size += len(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._blobs / digest.hexdigest())
        return Descriptor(media_type, f"sha256:{digest.hexdigest()}", size)

    def open(self, blob: Descriptor) -> IO[bytes]:
        return open(self._blobs / blob.digest.partition(":")[2], "rb")

    def put(self, name: str, content: bytes) -> None:
        (self.path / name).write_bytes(content)


class TarLayout:
    """A layout as one tar, of which each blob is written once, before its name is known."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._file = file
        self._offsets: dict[str, int] = {}
        for name in ("blobs/", "blobs/sha256/"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, _TIME_S
            file.write(folder.tobuf(tarfile.GNU_FORMAT))

    def add(self, media_type: str, blocks: Iterable[bytes]) -> Descriptor:
        digest, size, start = hashlib.sha256(), 0, self._file.tell()
        self._file.write(bytes(_TAR_BLOCK))
        for block in blocks:
            digest.update(block)
            size += len(block)
            self._file.write(block)
        blob = Descriptor(media_type, f"sha256:{digest.hexdigest()}", size)
        if blob.digest in self._offsets:
            self._file.seek(start)
            self._file.truncate()
            return blob
        self._file.write(bytes(-size % _TAR_BLOCK))
        end = self._file.tell()
        self._file.seek(start)
        self._file.write(_tar_head(f"blobs/sha256/{digest.hexdigest()}", size))
        self._file.seek(end)
        self._offsets[blob.digest] = start + _TAR_BLOCK
        return blob

    def open(self, blob: Descriptor) -> IO[bytes]:
        file = open(self.path, "rb", buffering=0)
        return io.BufferedReader(_Slice(file, self._offsets[blob.digest], blob.size_bytes))

    def put(self, name: str, content: bytes) -> None:
        self._file.write(
            _tar_head(name, len(content)) + content + bytes(-len(content) % _TAR_BLOCK)
        )

    def close(self) -> None:
        self._file.write(bytes(2 * _TAR_BLOCK))
        self._file.flush()
        os.fsync(self._file.fileno())


class _Slice(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: IO[bytes], start: int, size_bytes: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._at)
        block = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


def add_layer(layout: Layout, name: str, blocks: Iterable[bytes]) -> Layer:
    """Compress a layer's tar into a blob."""
    plain = hashlib.sha256()

    def compressed() -> Iterator[bytes]:
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        for block in blocks:
            plain.update(block)
            yield compressor.compress(block)
        yield compressor.flush()

    blob = layout.add(LAYER, compressed())
    return Layer(name, blob, f"sha256:{plain.hexdigest()}")


def complete(
    layout: Layout,
    layers: Sequence[Layer],
    architecture: str,
    config: Mapping[str, Any],
    reference: str,
) -> Image:
    """Add configuration, manifest and index; `reference` is the image's name in the index."""
    labels = dict(config.get("Labels") or {})
    document = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created_by": f"torchyard: {layer.name}"} for layer in layers],
    }
    config_blob = layout.add(CONFIG, [_json(document)])
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config_blob.to_json(),
        "layers": [layer.blob.to_json() for layer in layers],
        "annotations": {
            key: value for key, value in labels.items() if key.startswith("org.opencontainers.")
        },
    }
    manifest_blob = layout.add(MANIFEST, [_json(manifest)])
    names = {"org.opencontainers.image.ref.name": reference}
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{**manifest_blob.to_json(), "annotations": names}],
    }
    layout.put("index.json", _json(index))
    layout.put("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    return Image(config_blob, tuple(layers), manifest_blob)


@contextmanager
def written(target: Path, overwrite: bool = False) -> Iterator[Layout]:
    """A layout to fill, which is at `target` once the block has ended without an error.

    Args:
        target: a name that ends in `.tar` is a tar file, any other a folder.

    Raises:
        Conflict: `target` exists, and `overwrite` is false.
        DiskFull: the disk is full; nothing is left of the image.
    """
    check_target(target, overwrite)
    _remove_drafts_of_dead(target)
    draft = target.with_name(f".{target.name}.exporting-{os.getpid()}")
    layout: FolderLayout | TarLayout
    try:
        with enough_space(target):
            if target.suffix == ".tar":
                with open(draft, "xb+") as file:
                    layout = TarLayout(draft, file)
                    yield layout
                    layout.close()
            else:
                draft.mkdir()
                layout = FolderLayout(draft)
                yield layout
            _publish(draft, target)
            layout.path = target
    finally:
        _remove(draft)


@contextmanager
def enough_space(target: Path) -> Iterator[None]:
    """
    Raises:
        DiskFull: the block found the disk full.
    """
    try:
        yield
    except OSError as error:
        if not isinstance(disk.meaning(error), DiskFull):
            raise
        raise DiskFull(
            f"no space left for `{target}`", "free some there, or choose another disk"
        ) from error


def check_target(target: Path, overwrite: bool) -> None:
    """
    Raises:
        Conflict: it exists, and may not be overwritten, or is something else than an image.
        InvalidInput: an image can't be written there.
    """
    if target.suffix in (".gz", ".tgz", ".zst", ".zip"):
        raise InvalidInput(
            f"`{target}` is not a name for an image: its layers are compressed already",
            "name a `.tar` file, or a folder",
        )
    if not target.name or not target.parent.is_dir():
        raise InvalidInput(
            f"the folder `{target.parent}` does not exist", "create it, or choose another place"
        )
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise Conflict(f"`{target}` exists already", "name another one, or say `--overwrite`")
    is_layout = target.is_dir() and (target / "oci-layout").is_file()
    is_file = target.suffix == ".tar" and target.is_file() and not target.is_symlink()
    if not (is_file if target.suffix == ".tar" else is_layout and not target.is_symlink()):
        raise Conflict(
            f"`{target}` exists and is not an image that could be overwritten", "name another place"
        )


def _publish(draft: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.exporting-{os.getpid()}.old")
    if target.is_dir():
        target.rename(old)
    try:
        os.replace(draft, target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    _remove(old)


def _remove_drafts_of_dead(target: Path) -> None:
    """Remove what an export to the same place has left that was killed."""
    for draft in target.parent.glob(".*.exporting-*"):
        match = _DRAFT.fullmatch(draft.name)
        if match and match["name"] == target.name and not _is_alive(int(match["process"])):
            _remove(draft)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _tar_head(name: str, size_bytes: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size_bytes, 0o644, _TIME_S
    return member.tobuf(tarfile.GNU_FORMAT)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
