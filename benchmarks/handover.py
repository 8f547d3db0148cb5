"""How long it takes to take a built environment over from the build user, and to link inputs.

    python benchmarks/handover.py [FILES] [MEGABYTES]

Prints the seconds for a tree of so many files: copied and checked as after a build, copied by
`shutil.copytree` for comparison, and linked as inputs of the home's own datastores are.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torchyard.environments.build import handover


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with tempfile.TemporaryDirectory(dir=".") as folder:
        source = Path(folder, "built")
        _make(source, files, megabytes * 1_000_000 // files)
        print(f"{files:,} files, {megabytes:,} MB")
        for name, act in (
            ("handover.copy", handover.copy),
            ("shutil.copytree", shutil.copytree),
            ("os.link", _link),
        ):
            print(f"{name:16} {_seconds(act, source, Path(folder, name)):6.2f} s")


def _make(folder: Path, files: int, size_bytes: int) -> None:
    content = os.urandom(size_bytes)
    for number in range(files):
        target = folder / f"package{number // 100}" / f"module{number}.py"
        if not target.parent.exists():
            target.parent.mkdir(parents=True)
        target.write_bytes(content)


def _link(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=os.link)


def _seconds(act: Callable[[Path, Path], object], source: Path, target: Path) -> float:
    start = time.monotonic()
    act(source, target)
    return time.monotonic() - start


if __name__ == "__main__":
    main()
