"""What environments cost: built, used again, asked for by many at once, and on the disk.

    .venv/bin/python benchmarks/environments.py                    # but for the cold build
    .venv/bin/python benchmarks/environments.py --only cold disk   # downloads, minutes

Parts: `cold` builds a curated environment with an empty cache, beside `uv pip install` of the
same lock with an empty cache of its own; `first` is a job in a new environment whose wheels are
cached, from asking to its first line, beside `uv pip install` of the same lock and a Python that
prints it; `warm` is what a job's start spends on an environment that is there; `many` are 16 jobs
at once that ask for one new environment; `row` are short jobs in a row while its modules are
compiled; `disk` is three environments that share torch, beside three plain ones.
"""

from __future__ import annotations

import argparse
import io
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
from torchyard.environments.packages import lock, machine_config
from torchyard.environments.packages.uv import Uv, find_uv
from torchyard.worker.files import thin_environment
from torchyard.worker.system import mounts
from torchyard.worker.system.mounts import Mount

PARTS = ("first", "row", "warm", "many", "disk", "cold")
# What `first` and `row` build: no torch in `row`, whose jobs import some of it.
FIRST = ["torch==2.13.0", "numpy", "scikit-learn", "mlflow-skinny"]
ROW = ["pandas", "scikit-learn", "mlflow-skinny", "sympy"]
ROW_COMMAND = (
    "python -c 'import time; began = time.time(); import pandas, sympy; "
    'print(time.time() - began, "s"); print(sympy.sqrt(8), pandas.Series([1, 2]).sum())\''
)
SHARING = (
    ["torch==2.13.0", "timm"],
    ["torch==2.13.0", "torchmetrics"],
    ["torch==2.13.0", "einops"],
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:-1])
    parser.add_argument("--name", default="acpt-pytorch-2.13-cpu", help="a curated environment")
    parser.add_argument("--packages", nargs="+", help="for `cold`, in place of that environment")
    parser.add_argument("--home", type=Path, help="a home where it is built already, for `warm`")
    parser.add_argument("--rounds", type=int, default=1, help="of `cold` and `first`")
    parser.add_argument("--jobs", type=int, default=50, help="of `row`")
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
    listed, home = arguments.packages or [arguments.name], top / "home"

    def torchyard() -> Mapping[str, float]:
        _fresh(home)
        started = time.monotonic()
        _build(home, listed, _fresh(top / "cache"))
        return {"wall_s": time.monotonic() - started}

    def peer(*more: str) -> Callable[[], Mapping[str, float]]:
        return lambda: {"wall_s": _install_lock(top, home, _fresh(top / "cache"), *more)}

    cases = [
        Case("torchyard, modules not compiled yet", torchyard),
        Case("uv pip install of the same lock", peer()),
        Case("the same, byte-compiled", peer("--compile-bytecode")),
    ]
    figures.compare(f"cold build of {', '.join(listed)}", cases, arguments.rounds)


def _install(top: Path, arguments: list[str], cache: Path | None, into: str = "plain") -> float:
    """Seconds of `uv venv` and `uv pip install` into `top`/`into`."""
    venv = _fresh(top / into)
    variables = dict(machine_config.read(os.environ).variables)
    if cache is not None:
        variables["UV_CACHE_DIR"] = str(cache)
    started = time.monotonic()
    figures.run([find_uv(), "venv", "-q", "--python", sys.executable, venv], variables)
    python = venv / "bin" / "python"
    figures.run([find_uv(), "pip", "install", "-q", "--python", python, *arguments], variables, top)
    return time.monotonic() - started


def _install_lock(top: Path, home: Path, cache: Path | None, *more: str) -> float:
    """The same of the lock of the one environment in a home."""
    [file] = (home / "environments").glob("*.lock.txt")
    text = file.read_text()
    uv = Uv(machine_config.read(os.environ), io.BytesIO(), lambda: False, cache)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    source = lock.torch_source(text, python, uv, top)
    shutil.copy(file, top / "lock.txt")
    return _install(top, ["--no-deps", *source, *more, "-r", "lock.txt"], cache)


# First


def first(top: Path, arguments: argparse.Namespace) -> None:
    """Of a curated environment, which comes with its lock, and of packages without one."""
    _first(top, arguments.name, lambda _: arguments.name, arguments.rounds)
    # The same packages by other words are another environment.
    _first(
        top,
        f"a new environment of {', '.join(FIRST)}",
        lambda count: {"pip_requirements": [*FIRST, f"six>=1.{count}"]},
        arguments.rounds,
    )


def _first(top: Path, title: str, environment: Callable[[int], Any], rounds: int) -> None:
    count = 0
    with figures.temporary_yard() as variables:
        home = Path(variables["TORCHYARD_HOME"])

        def torchyard() -> Mapping[str, float]:
            nonlocal count
            count += 1
            environments = home / "environments"
            if environments.exists():
                figures.remove(environments)
            return {"first_line_s": _first_line(home, f"first-{count}", environment(count))}

        def peer() -> Mapping[str, float]:
            started = time.monotonic()
            _install_lock(top, home, None)
            python = top / "plain" / "bin" / "python"
            figures.run([python, "-c", "print('first line')"], variables)
            return {"first_line_s": time.monotonic() - started}

        torchyard()  # fills uv's cache
        cases = [Case("torchyard", torchyard), Case("uv pip install of the same lock", peer)]
        figures.compare(title, cases, rounds)


def _first_line(home: Path, name: str, environment: Any) -> float:
    """Seconds from asking for a job to the first line of its script."""
    started = time.time()
    _job(
        home, name, f"python -c '{figures.FIRST_LINE.strip().replace(chr(10), '; ')}'", environment
    )
    return figures.printed_lines(_output(home, name))[0] - started


def _job(home: Path, name: str, command: str, environment: Any) -> float:
    """Seconds from asking for a job to its end."""
    started = time.monotonic()
    _ask(home, "jobs", {"name": name, "command": command, "environment": environment})
    while (status := _ask(home, f"jobs/{name}")["status"]) not in ("Completed", "Failed"):
        time.sleep(0.02)
    assert status == "Completed", name
    return time.monotonic() - started


def _output(home: Path, name: str) -> str:
    [file] = (home / "logs").glob(f"**/{name}/**/user_logs/std_log.txt")
    return file.read_text()


# Row


def row(top: Path, arguments: argparse.Namespace) -> None:
    with figures.temporary_yard() as variables:
        home = Path(variables["TORCHYARD_HOME"])
        environment = {"pip_requirements": ROW}
        _build(top / "filled", ROW, None)  # fills uv's cache
        walls: list[float] = []
        imports: list[float] = []
        outputs: set[str] = set()
        compiled_at = None
        for number in range(arguments.jobs):
            figures.progress(f"job {number + 1} of {arguments.jobs}")
            name = f"row-{number}"
            walls.append(_job(home, name, ROW_COMMAND, environment))
            seconds, _, output = _output(home, name).partition(" s\n")
            imports.append(float(seconds))
            outputs.add(output)
            if compiled_at is None and [*(home / "environments").glob("*.compiled")]:
                compiled_at = number
        figures.progress("")
        print(f"\n{len(walls)} jobs in a row, modules compiled when job {compiled_at} ended")
        print(f"  different outputs: {len(outputs)}")
        for title, values in (("from asking to the end", walls), ("imports", imports)):
            later = values[1:]
            print(
                f"  {title}, s: first {values[0]:.2f}, last {values[-1]:.2f}; later ones: median "
                f"{statistics.median(later):.2f}, slowest {max(later):.2f} "
                f"({max(later) / values[0]:.2f}x the first)"
            )


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
    torchyard = [_build(home, lines, cache, is_compiled=True) for lines in SHARING]
    plain = []
    for number, lines in enumerate(SHARING):
        _install(top, ["--link-mode", "copy", *lines], cache, into=f"plain-{number}")
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


def _build(
    home: Path, arguments: list[str], cache: Path | None, *, is_compiled: bool = False
) -> Path:
    """In a process of its own, as a server that just started would."""
    name = arguments[0] if len(arguments) == 1 else {"pip_requirements": arguments}
    code = (
        "import json, sys; from pathlib import Path\n"
        "from torchyard.environments.contents import build\n"
        "print(build(Path(sys.argv[1]), json.loads(sys.argv[2]), "
        f"is_compiled={is_compiled}))"
    )
    variables = dict(os.environ) if cache is None else {**os.environ, "UV_CACHE_DIR": str(cache)}
    output = figures.run([sys.executable, "-c", code, str(home), json.dumps(name)], variables)
    return Path(output.strip().splitlines()[-1])


def _fresh(folder: Path) -> Path:
    if folder.exists():
        figures.remove(folder)
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


_PARTS = {"cold": cold, "first": first, "row": row, "warm": warm, "many": many, "disk": disk}

if __name__ == "__main__":
    main()
