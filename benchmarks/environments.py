"""What environments cost: built, used again, asked for by many at once, and on the disk.

    .venv/bin/python benchmarks/environments.py                    # but for the cold build
    .venv/bin/python benchmarks/environments.py --only cold disk   # downloads, minutes

Parts: `cold` builds a curated environment with an empty cache, beside `uv pip install` of the
same list with an empty cache of its own; `warm` is what a job's start spends on an environment
that is there; `many` are 16 jobs at once that ask for one new environment; `disk` is three
environments that share torch, beside three plain ones.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import figures
from figures import Case

from torchyard.environments import contents
from torchyard.environments.names import curated_environments
from torchyard.environments.packages import machine_config
from torchyard.environments.packages.uv import find_uv
from torchyard.worker.files import thin_environment
from torchyard.worker.system import mounts
from torchyard.worker.system.mounts import Mount

PARTS = ("warm", "many", "disk", "cold")
SHARING = (
    ["torch==2.13.0", "timm"],
    ["torch==2.13.0", "torchmetrics"],
    ["torch==2.13.0", "einops"],
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:-1])
    parser.add_argument("--name", default="acpt-pytorch-2.13-cpu", help="a curated environment")
    parser.add_argument("--home", type=Path, help="a home where it is built already, for `warm`")
    parser.add_argument("--rounds", type=int, default=1, help="of `cold`")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="torchyard-benchmark-", ignore_cleanup_errors=True
    ) as folder:
        top = Path(folder)
        try:
            for part in arguments.only:
                _PARTS[part](top, arguments)
        finally:
            for inner in top.iterdir():
                figures.remove(inner)


# Cold


def cold(top: Path, arguments: argparse.Namespace) -> None:
    name = arguments.name

    def torchyard() -> Mapping[str, float]:
        home = _fresh(top / "home")
        started = time.monotonic()
        _build(home, [name], _fresh(top / "cache"))
        return {"wall_s": time.monotonic() - started}

    def peer(*more: str) -> Callable[[], Mapping[str, float]]:
        return lambda: {"wall_s": _install(top, _listed(name), _fresh(top / "cache"), *more)}

    cases = [
        Case("torchyard", torchyard),
        Case("uv pip install", peer()),
        Case("uv pip install, byte-compiled", peer("--compile-bytecode")),
    ]
    figures.compare(f"cold build of {name}", cases, arguments.rounds)


def _listed(name: str) -> list[str]:
    """Every package with its version, as this machine has it; torch in its build for the CPU."""
    curated = curated_environments.find_by_name(name)
    assert curated is not None
    layers = ("pip", "horovod")
    packages: Mapping[str, str] = curated.contents["packages"]
    return [f"{name}=={version}" for name, version in packages.items() if name not in layers]


def _install(top: Path, listed: list[str], cache: Path, *more: str, into: str = "plain") -> float:
    """Seconds of `uv venv` and `uv pip install` into `top`/`into`."""
    venv = _fresh(top / into)
    variables = {**machine_config.read(os.environ).variables, "UV_CACHE_DIR": str(cache)}
    started = time.monotonic()
    figures.run([find_uv(), "venv", "-q", "--python", sys.executable, venv], variables)
    python = venv / "bin" / "python"
    figures.run([find_uv(), "pip", "install", "-q", "--python", python, *more, *listed], variables)
    return time.monotonic() - started


# Warm


def warm(top: Path, arguments: argparse.Namespace) -> None:
    home = arguments.home or _fresh(top / "home")
    built = contents.build(home, arguments.name)
    read_only = [Mount(str(built), str(built), for_good=False)]

    def start(command: list[str]) -> float:
        started = time.monotonic()
        subprocess.run(command, check=True)
        return time.monotonic() - started

    looks, thins, pythons, ranks = [], [], [], []
    for number in range(20):
        started = time.monotonic()
        assert (built / "bin" / "python").exists()
        os.utime(built)
        looks.append(time.monotonic() - started)
        started = time.monotonic()
        thin_environment.create(built, top / f"thin-{number}")
        thins.append(time.monotonic() - started)
        plain = ["/bin/sh", "-c", "true"]
        pythons.append(start([sys.executable, "-I", "-S", "-c", "pass"]))
        ranks.append(start(mounts.command(read_only, plain)) - start(plain))
    print(f"\n{arguments.name}, warm, medians of 20, in ms")
    for title, values in (
        ("finding it", looks),
        ("an attempt's own environment over it", thins),
        ("a rank within its read-only mount (root only)", ranks),
        ("all of it", [sum(each) for each in zip(looks, thins, ranks, strict=True)]),
        ("beside it: a Python that does nothing", pythons),
    ):
        middle, least = statistics.median(values) * 1000, min(values) * 1000
        print(f"  {title:48}{middle:8.1f}, least {least:8.1f}")


# Many


def many(top: Path, arguments: argparse.Namespace) -> None:
    with figures.temporary_yard() as variables:
        home = Path(variables["TORCHYARD_HOME"])
        for count in (1, 16):
            # The same packages by other words are another environment.
            new = {"pip_requirements": [f"six>=1.{count}", "packaging"]}
            names = [f"many-{count}-{number}" for number in range(count)]
            started = time.monotonic()
            for name in names:
                _ask(home, "jobs", {"name": name, "command": "true", "environment": new})
            while any(_ask(home, f"jobs/{name}")["status"] != "Completed" for name in names):
                time.sleep(0.2)
            wall_s = time.monotonic() - started
            hash = _ask(home, "environments/resolve", {"environment": new})["hash"]
            log = (home / "environments" / f"{hash}.log").read_text()
            builds = log.count("Building environment")
            print(f"\n{count} jobs with one new environment: {wall_s:.2f} s, {builds} build(s)")


def _ask(home: Path, path: str, body: Any = None) -> Any:
    server = json.loads((home / "server.json").read_text())
    request = urllib.request.Request(
        f"{server['url']}/v1/workspaces/default/{path}",
        None if body is None else json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {(home / 'token').read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


# Disk


def disk(top: Path, arguments: argparse.Namespace) -> None:
    cache = top / "shared-cache"
    home = _fresh(top / "home")
    torchyard = [_build(home, lines, cache) for lines in SHARING]
    plain = []
    for number, lines in enumerate(SHARING):
        _install(top, [*lines], cache, "--link-mode", "copy", into=f"plain-{number}")
        plain.append(top / f"plain-{number}")
    print("\nthree environments that share torch, in MB on the disk")
    for name, folders in (("torchyard", torchyard), ("three plain ones", plain)):
        each = sum(_blocks([folder]) for folder in folders)
        print(f"  {name:24}added up {each:8.0f}, together {_blocks(folders):8.0f}")
    print(f"  torchyard with the cache that they share: {_blocks([*torchyard, cache]):8.0f}")


def _blocks(folders: Iterable[Path]) -> float:
    """Megabytes; a file under several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for folder in folders:
        for top, _, names in os.walk(folder):
            for name in names:
                packages = os.lstat(os.path.join(top, name))
                seen[packages.st_dev, packages.st_ino] = packages.st_blocks * 512
    return sum(seen.values()) / 1e6


def _build(home: Path, arguments: list[str], cache: Path) -> Path:
    """In a process of its own, as a server that just started would."""
    name = arguments[0] if len(arguments) == 1 else {"pip_requirements": arguments}
    code = (
        "import json, sys; from pathlib import Path\n"
        "from torchyard.environments.contents import build\n"
        "print(build(Path(sys.argv[1]), json.loads(sys.argv[2])))"
    )
    variables = {**os.environ, "UV_CACHE_DIR": str(cache)}
    output = figures.run([sys.executable, "-c", code, str(home), json.dumps(name)], variables)
    return Path(output.strip().splitlines()[-1])


def _fresh(folder: Path) -> Path:
    if folder.exists():
        figures.remove(folder)
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


_PARTS = {"cold": cold, "warm": warm, "many": many, "disk": disk}

if __name__ == "__main__":
    main()
