"""Resolve curated environments that can't be built here: `python tools/lock_curated.py NAME…`.

Owns: `lock.txt` in the folder of an environment for GPUs.
Leaves: environments that can be built to `make curated`, which records what a build holds.
Always: versions are PyPI's, for Linux on x86-64, and only as old as uv finds them; the lock holds
no index and no path of this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from torchyard.environments.names import curated_environments
from torchyard.environments.names.curated_environments import FOLDER, Curated
from torchyard.environments.packages import layers
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.packages.uv import find_uv

_PLATFORM = "x86_64-manylinux_2_28"
_HEAD = """\
# Resolved, never built: `make curated-locks`, of {date}, for Python {python} on {platform}.
# What ends with `+torchyard` is a layer of torchyard's own.
"""


def lock(curated: Curated) -> str:
    """The text of its `lock.txt`.

    Raises:
        SystemExit: nothing fits, with what uv says.
    """
    remaining, layer_names, _ = layers.split(curated.requirements)
    layer_lines = [f"{name}=={version}" for name, version in layers.versions(layer_names).items()]
    lines = sorted([*_compiled(curated, remaining), *layer_lines])
    today = datetime.now(timezone.utc).date().isoformat()
    head = _HEAD.format(date=today, python=curated.python, platform=_PLATFORM)
    return head + "".join(f"{line}\n" for line in lines)


def _compiled(curated: Curated, requirements: list[str]) -> list[str]:
    """What uv resolves, as `name==version`."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "requirements.in").write_text("\n".join(requirements) + "\n", "utf-8")
        arguments = [
            *("pip", "compile", "requirements.in", "--quiet", "--no-header", "--no-annotate"),
            *("--no-emit-index-url", "--no-emit-find-links"),
            *("--python-version", curated.python, "--python-platform", _PLATFORM),
        ]
        outcome = subprocess.run(
            [find_uv(), *arguments],
            cwd=folder,
            env=dict(os.environ),
            capture_output=True,
            text=True,
        )
    if outcome.returncode != 0:
        raise SystemExit(f"error: {curated.name} can't be resolved:\n{outcome.stderr.strip()}")
    lines = [line.partition(" ;")[0].strip() for line in outcome.stdout.splitlines()]
    return [line for line in lines if package_name(line) and "==" in line]


def main(names: list[str]) -> None:
    if not names:
        raise SystemExit("error: no environment is named\nhint: make curated-locks LOCKED=NAME")
    for name in names:
        curated = curated_environments.find_by_name(name)
        if curated is None:
            raise SystemExit(f"error: no curated environment has the name `{name}`")
        text = lock(curated)
        (FOLDER / curated.name / "lock.txt").write_text(text, encoding="utf-8")
        print(f"{curated.name}: {text.count('==')} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
