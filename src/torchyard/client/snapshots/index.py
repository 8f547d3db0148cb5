"""Remember what files hashed to, so that an unchanged folder is not read again.

Owns: the cache file of one folder: what each file looked like, its hash, the manifest.
Leaves: which entries may be believed to snapshot.py.
Always: only a cache: a file that is missing, torn or of another version is an empty index.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from array import array
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import files
from torchyard.client.snapshots.walk import Found

_VERSION = 2
_HASH_BYTES = 32
_HEADER_BYTES = 128


@dataclass(frozen=True)
class Index:
    """`looks` is all of a folder's `Found` in one piece of bytes, compared without parsing.

    `hashes` are the sha256 of the files, 32 bytes each, in the order of `looks`. `manifest` is
    empty when some file of the folder may not be believed and is missing here.
    """

    looks: bytes = b""
    hashes: bytes = b""
    manifest: bytes = b""

    def by_look(self) -> dict[Found, str]:
        """The hash of each file as it looked."""
        if not self.looks:
            return {}
        names_size = int.from_bytes(self.looks[:8], "little")
        names = self.looks[8 : 8 + names_size].decode().split("\0")
        numbers = array("q")
        numbers.frombytes(self.looks[8 + names_size :])
        count = len(names)
        columns = [numbers[start : start + count] for start in range(0, 5 * count, count)]
        hashes = [
            self.hashes[start : start + _HASH_BYTES].hex()
            for start in range(0, count * _HASH_BYTES, _HASH_BYTES)
        ]
        return dict(zip(zip(names, *columns, strict=True), hashes, strict=True))


def looks_of(entries: list[Found]) -> bytes:
    """`found` in one piece; empty when a number does not fit, which no cache can help."""
    if not entries:
        return b""
    names, *columns = zip(*entries, strict=True)
    text = "\0".join(names).encode()
    try:
        numbers = [array("q", column).tobytes() for column in columns]
    except OverflowError:
        return b""
    return b"".join([len(text).to_bytes(8, "little"), text, *numbers])


def file_for(index_folder: Path, path: Path) -> Path:
    """Where the index of the folder `path` is kept."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return index_folder / name


NOTHING = Index()
"""What is remembered of a folder that was never looked at."""


def load(index_file: Path | None) -> Index:
    if index_file is None:
        return NOTHING
    try:
        with open(index_file, "rb", buffering=0) as file:
            version, looks, hashes, manifest = json.loads(file.read(_HEADER_BYTES))
            if version != _VERSION:
                return NOTHING
            index = Index(file.read(looks), file.read(hashes), file.read(manifest))
    except (OSError, ValueError, TypeError):
        return NOTHING
    sizes = len(index.looks), len(index.hashes), len(index.manifest)
    return index if sizes == (looks, hashes, manifest) else NOTHING


def save(index_file: Path, index: Index) -> None:
    sizes = [_VERSION, len(index.looks), len(index.hashes), len(index.manifest)]
    header = json.dumps(sizes).encode().ljust(_HEADER_BYTES)
    temporary = index_file.with_name(f".{index_file.name}.{secrets.token_hex(4)}")
    try:
        files.make_private(index_file.parent)  # it is in the home
        temporary.write_bytes(b"".join([header, index.looks, index.hashes, index.manifest]))
        os.replace(temporary, index_file)
    except OSError:
        # A full or read-only disk costs the next snapshot its speed, and nothing else.
        temporary.unlink(missing_ok=True)
