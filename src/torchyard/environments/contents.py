"""What a built environment really holds.

Owns: reading it off the folder; `contents.json` of the curated environments (`make curated`).
Leaves: building to actions.py.
Always: what is told was found on the disk, never asked for; nothing of the environment is run but
its Python's own version.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from torchyard.environments.build.builder import site_packages
from torchyard.environments.names import curated_environments
from torchyard.environments.packages.requirements import normal

_ASK = "import platform; print(platform.python_version())"


def read(folder: Path) -> dict[str, Any]:
    """`python`, `packages` (name to version), `torch`, `cuda`, `size_bytes` of an environment."""
    packages = {
        normal(found.metadata["Name"]): found.version
        for found in distributions(path=[str(site_packages(folder))])
    }
    asked = subprocess.run(
        [folder / "bin" / "python", "-I", "-c", _ASK], capture_output=True, text=True, check=True
    )
    return {
        "python": asked.stdout.strip(),
        "torch": packages.get("torch", ""),
        "cuda": cuda_of(packages),
        "packages": dict(sorted(packages.items())),
        "size_bytes": _size(folder),
    }


def cuda_of(packages: Mapping[str, str]) -> str:
    """The CUDA that torch was built for, as `13.0`; empty for a build without."""
    torch = packages.get("torch", "")
    if "+cu" in torch:
        digits = torch.partition("+cu")[2]
        return f"{digits[:-1]}.{digits[-1]}"
    if "+" in torch:
        return ""
    runtime = packages.get("nvidia-cuda-runtime") or packages.get("nvidia-cuda-runtime-cu12")
    return ".".join(runtime.split(".")[:2]) if runtime else ""


def differences(said: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """In words, where `contents.json` says something else than a build; sizes may differ."""
    told = []
    for key in ("torch", "cuda"):
        if said.get(key) != found.get(key):
            told.append(f"{key}: `{said.get(key)}` is said, `{found.get(key)}` was found")
    before, now = said.get("packages", {}), found["packages"]
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            told.append(f"{name}: {before.get(name, 'absent')} is said, {now.get(name, 'absent')}")
    return told


def _size(folder: Path) -> int:
    """Bytes on the disk; a file under two names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for top, _, files in os.walk(folder):
        for name in files:
            found = os.lstat(os.path.join(top, name))
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total


def main() -> None:
    """Build curated environments in a home folder and write, or check, what they hold."""
    parser = argparse.ArgumentParser("python -m torchyard.environments.contents")
    parser.add_argument("home", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--check", action="store_true", help="only say what differs")
    asked = parser.parse_args()
    wrong = False
    for name in asked.names:
        found = read(build(asked.home, name))
        known = curated_environments.named(name)
        assert known is not None
        told = differences(known.contents, found)
        if asked.check and told:
            wrong = True
            print("\n".join(f"error: {name}: {line}" for line in told), file=sys.stderr)
        elif not asked.check:
            text = json.dumps(found, indent=1) + "\n"
            curated_environments.contents_file(known.name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(found['packages'])} packages, {found['size_bytes'] >> 20} MiB")
    raise SystemExit(2 if wrong else 0)


def build(home: Path, name: str) -> Path:
    """The folder of an environment, built now unless it is there; where a server finds it, too."""
    from torchyard.base import home_database
    from torchyard.base.clock import SystemClock
    from torchyard.environments.actions import Environments

    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    db = home_database.open_for(home, home_database.chosen(home, ""))
    try:
        environments = Environments(home, db, SystemClock(), os.environ)
        return environments.build(environments.resolve(name))
    finally:
        db.close()


if __name__ == "__main__":
    main()
