"""Put a snapshot's files back into a folder.

Owns: which files are asked for, hashes checked, modes set.
Leaves: requests to a `Source`, which client/snapshots/snapshots.py gives.
Always: nothing that stands in the folder is overwritten unless asked for; a file is there whole,
with the bytes its hash promises, or not at all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.errors import Conflict, Internal


def restore(
    manifest: Mapping[str, Any],
    targets: list[Path],
    blob: Callable[[str], Iterator[bytes]],
    *,
    overwrite: bool = False,
) -> list[Path]:
    """Write the manifest's files to `targets`, one for each, in its order.

    Args:
        blob: the bytes of a sha256, in pieces.
        overwrite: replace other content that stands there.

    Raises:
        Conflict: a file is there with another content; nothing was written.
    """
    files = manifest["files"]
    absent = []
    for file, target in zip(files, targets, strict=True):
        if not os.path.lexists(target):
            absent.append((file, target))
        elif not _is(target, file["sha256"]):
            if not overwrite:
                raise Conflict(
                    f"`{target}` is there already, with another content",
                    "name an empty folder with `--download-path`, or say `--overwrite`",
                )
            absent.append((file, target))
    for file, target in absent:
        _write(target, file, blob(file["sha256"]))
    return targets


def _is(target: Path, sha256: str) -> bool:
    if target.is_symlink() or not target.is_file():
        return False
    digest = hashlib.sha256()
    with open(target, "rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest() == sha256


def _write(target: Path, file: Mapping[str, Any], chunks: Iterator[bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(files.draft_name(target.name))
    digest = hashlib.sha256()
    try:
        with open(temporary, "wb") as content:
            for chunk in chunks:
                digest.update(chunk)
                content.write(chunk)
        if digest.hexdigest() != file["sha256"]:
            raise Internal(f"`{file['path']}` arrived with other bytes than its hash promises")
        os.chmod(temporary, 0o755 if file.get("mode") == "0755" else 0o644)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
