"""The contents of a built environment.

Owns: reading them from the folder; `contents.json` of the curated environments, which
`make curated` builds without a server.
Leaves: building to build/builds.py.
Always: contents are what is on the disk, never what was requested; of the environment, only its
Python is run, to print its version, and never by a server: packages run code as it starts.
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

from torchyard.base.clock import SystemClock
from torchyard.base.home import home_database
from torchyard.environments import version_labels
from torchyard.environments.assembly import Environments
from torchyard.environments.build import cuda_builds
from torchyard.environments.build.builder import site_packages
from torchyard.environments.export import python_of
from torchyard.environments.names import curated_environments
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.packages.requirements import normal
from torchyard.environments.types import Platform, this_platform

_ASK = "import platform; print(platform.python_version())"


def read(folder: Path) -> dict[str, Any]:
    """`python`, `packages` (name to version), `torch`, `cuda`, `size_bytes` of an environment."""
    return {**read_files(folder), "python": read_python(folder)}


def read_files(folder: Path) -> dict[str, Any]:
    """As `read`, but nothing of the environment is run: `python` is what its `pyvenv.cfg` says."""
    packages = {
        normal(distribution.metadata["Name"]): distribution.version
        for distribution in distributions(path=[str(site_packages(folder))])
    }
    configuration = folder / "pyvenv.cfg"
    lines = configuration.read_text("utf-8").splitlines() if configuration.exists() else []
    return {
        "python": python_of(lines),
        "torch": packages.get("torch", ""),
        "cuda": cuda_builds.of_torch(site_packages(folder))
        or version_labels.cuda_of(packages)
        or "",
        "packages": dict(sorted(packages.items())),
        "size_bytes": _size(folder),
    }


def read_python(folder: Path) -> str:
    """The version of an environment's Python, as `3.11.7`."""
    outcome = subprocess.run(
        [folder / "bin" / "python", "-I", "-c", _ASK], capture_output=True, text=True, check=True
    )
    return outcome.stdout.strip()


def build(
    home: Path, environment: Any, platform: Platform | None = None, *, is_compiled: bool = True
) -> Path:
    """The folder of an environment, a reference or inline, built now unless it exists.

    Args:
        is_compiled: with its modules; otherwise the next server of the home compiles them.
        platform: what to build for; None is this machine.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    db = home_database.open_for(home, home_database.chosen(home, ""))
    try:
        environments = Environments(home, db, SystemClock(), os.environ, platform)
        spec = environments.resolver.resolve(environment)
        folder = environments.builds.run(spec)
        if is_compiled:
            environments.compiler.finish(spec.hash)
        return folder
    finally:
        db.close()


def build_curated(home: Path, curated: Curated) -> Path:
    """As `build`, for the accelerator that it is for: PyPI's CUDA build of torch runs on CPUs."""
    if not curated.accelerator:
        return build(home, curated.name)
    return build(home, curated.name, this_platform(curated.accelerator))


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Lines about each difference between `contents.json` and a build; sizes may differ."""
    lines = []
    for key in ("torch", "cuda"):
        if expected.get(key) != actual.get(key):
            lines.append(
                f"{key}: `{expected.get(key)}` expected, but the build has `{actual.get(key)}`"
            )
    before, now = expected.get("packages", {}), actual["packages"]
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            lines.append(
                f"{name}: {before.get(name, 'absent')} expected, "
                f"but the build has {now.get(name, 'absent')}"
            )
    return lines


def _size(folder: Path) -> int:
    """Bytes on the disk; hard links count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for top, _, files in os.walk(folder):
        for name in files:
            stat = os.lstat(os.path.join(top, name))
            if (stat.st_dev, stat.st_ino) not in seen:
                seen.add((stat.st_dev, stat.st_ino))
                total += stat.st_blocks * 512
    return total


def main() -> None:
    """Build curated environments in a home folder and write, or check, what they hold."""
    parser = argparse.ArgumentParser("python -m torchyard.environments.contents")
    parser.add_argument("home", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--check", action="store_true", help="only print differences")
    arguments = parser.parse_args()
    wrong = False
    for name in arguments.names:
        curated = curated_environments.find_by_name(name)
        if curated is None:
            parser.error(f"no curated environment has the name `{name}`")
        contents = read(build_curated(arguments.home, curated))
        lines = differences(curated.contents, contents)
        if arguments.check and lines:
            wrong = True
            print("\n".join(f"error: {name}: {line}" for line in lines), file=sys.stderr)
        elif not arguments.check:
            text = json.dumps(contents, indent=1) + "\n"
            curated_environments.contents_file(curated.name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(contents['packages'])} packages, {contents['size_bytes'] >> 20} MiB")
    raise SystemExit(2 if wrong else 0)


if __name__ == "__main__":
    main()
