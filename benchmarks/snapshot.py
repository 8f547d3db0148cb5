"""Snapshot of 10,000 unchanged files beside walking them, and hashing and copying them again.

python benchmarks/snapshot.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from figures import Case, compare

from torchyard.client.snapshots import snapshot
from torchyard.client.snapshots.walk import Limits

FILES = 10_000
SIZE_BYTES = 20_000  # 200 MB in all
NO_LIMITS = Limits(None, None)


def make_files(folder: Path) -> None:
    """A hundred folders of a hundred files, all different."""
    for number in range(FILES):
        file = folder / f"{number // 100:03}" / f"{number % 100:02}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(f"{number:08}".encode() * (SIZE_BYTES // 8))


def take(folder: Path, index: Path) -> dict[str, float]:
    started = time.monotonic()
    files = snapshot.find(folder, NO_LIMITS)
    snapshot.take(folder, files, index)
    assert len(files) == FILES
    return {"wall_s": time.monotonic() - started}


def walk(folder: Path) -> dict[str, float]:
    """Every file's status, as anyone who wants to know what changed has to read it."""
    started = time.monotonic()
    count = 0
    for top, _, names in os.walk(folder):
        for name in names:
            os.stat(os.path.join(top, name))
            count += 1
    assert count == FILES
    return {"wall_s": time.monotonic() - started}


def hash_and_copy(folder: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as copy:
        started = time.monotonic()
        for top, _, names in os.walk(folder):
            for name in names:
                hashlib.sha256(Path(top, name).read_bytes()).hexdigest()
        shutil.copytree(folder, Path(copy, "all"))
        return {"wall_s": time.monotonic() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, index = Path(temporary, "files"), Path(temporary, "index")
        index.mkdir()
        make_files(folder)
        time.sleep(2.5)  # files written a moment ago are hashed again, to be safe
        take(folder, index)
        compare(
            f"Snapshot of {FILES:,} unchanged files, {FILES * SIZE_BYTES / 1e6:.0f} MB",
            [
                Case("torchyard", partial(take, folder, index)),
                Case("os.walk and os.stat", partial(walk, folder)),
                Case("hashing and copying again", partial(hash_and_copy, folder)),
            ],
            arguments.rounds,
        )


if __name__ == "__main__":
    main()
