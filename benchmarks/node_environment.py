"""A new environment on several nodes that share no disk with the server.

    .venv/bin/python benchmarks/node_environment.py [--megabytes 1000] [--nodes 4]

Node folders on this machine ask a real server at once, two workers each, through the routes that
nodes use: the bytes that the server sends, and the seconds until the last worker has it. Then they
ask for a second environment, half of whose bytes are in files of the first. Beside the first one:
`cp -r` and `tar | tar` of the same folder into as many folders, one after the other, which
know nothing of checks, of cut connections or of who else asks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from executors import remote_site
from executors.remote_site import RemoteSite
from torchyard.shared import plan as plans
from torchyard.shared import server_address
from torchyard.shared.connection import Connection
from torchyard.shared.environment_mark import mark_of
from torchyard.worker.files import node_environment
from torchyard.worker.files.node_cache import NodeCache

_WORKERS_PER_NODE = 2


class CountedConnection(Connection):
    """Counts what comes in."""

    received = 0

    def download(
        self, path: str, write: Callable[[bytes], object], timeout_s: float = 60.0
    ) -> None:
        def counted(block: bytes) -> None:
            self.received += len(block)
            write(block)

        super().download(path, counted, timeout_s)


def be_worker(plan_file: Path, folder: Path) -> None:
    """A worker of a node, which prints what it received."""
    plan = plans.from_json(plan_file.read_text())
    link = CountedConnection(
        server_address.of_plan(plan), plan.report_token, f"/v1/attempts/{plan.attempt_id}"
    )
    cache = NodeCache(folder, 100 * 10**9)
    node_environment.bring(plan, link, cache, lambda: False, lambda _: None, in_place=False)
    print(link.received)


def make_environment(folder: Path, megabytes: int) -> None:
    """A venv whose packages are as those of torch: a few large files and many small ones."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    chance = random.Random(0)
    left = megabytes * 1_000_000
    for number in range(4):
        size = left // 5
        (packages / f"large{number}.so").write_bytes(chance.randbytes(1 << 20) * (size >> 20))
    for number in range(10_000):
        part = packages / f"package{number // 200}"
        part.mkdir(exist_ok=True)
        (part / f"module{number}.py").write_bytes(chance.randbytes(left // 5 // 10_000))


def make_second(first: Path, folder: Path) -> None:
    """The first one with other content in every other file."""
    shutil.copytree(first, folder, symlinks=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    chance = random.Random(1)
    for number, file in enumerate(sorted(file for file in packages.rglob("*") if file.is_file())):
        if number % 2:
            size = file.stat().st_size
            block = chance.randbytes(min(size, 1 << 20))
            file.write_bytes((block * (size // len(block) + 1))[:size])


def ask(site: RemoteSite, environment: Path, plan: plans.LaunchPlan, nodes: int) -> None:
    plan_file = site.node_folder / "plan.json"
    site.node_folder.mkdir(exist_ok=True)
    plan_file.write_text(plan.to_json())
    started = time.monotonic()
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", plan_file, site.node_folder / f"node-{node}"],
            stdout=subprocess.PIPE,
        )
        for node in range(nodes)
        for _ in range(_WORKERS_PER_NODE)
    ]
    received = sum(int(worker.communicate()[0]) for worker in workers)
    wall_s = time.monotonic() - started
    ratio = received / (_size(environment) * nodes)
    print(
        f"  {nodes} nodes, {len(workers)} workers: {wall_s:.2f} s, "
        f"{received / 1e6:,.0f} MB from the server, {ratio:.3f} x nodes' copies"
    )


def _size(folder: Path) -> int:
    return sum(
        Path(parent, name).lstat().st_size
        for parent, _, names in os.walk(folder)
        for name in names
        if not Path(parent, name).is_symlink()
    )


def peer(title: str, environment: Path, top: Path, nodes: int, command: str) -> None:
    started = time.monotonic()
    for node in range(nodes):
        target = top / f"{title.split()[0]}-{node}"
        target.mkdir()
        subprocess.run(["sh", "-c", command, "sh", str(environment), str(target)], check=True)
    print(f"  {title}: {time.monotonic() - started:.2f} s")
    for node in range(nodes):
        shutil.rmtree(top / f"{title.split()[0]}-{node}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--worker", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        be_worker(*options.worker)
        return
    with (
        tempfile.TemporaryDirectory(prefix="torchyard-benchmark-") as folder,
        remote_site.serving(Path(folder)) as site,
    ):
        environment = Path(folder, "home", "environments", "benchmark")
        environment.parent.mkdir(exist_ok=True)
        make_environment(environment, options.megabytes)
        second = environment.with_name("second")
        make_second(environment, second)
        job = site.submit(command="sleep 600")
        for folder_asked, title in ((environment, "an"), (second, "a second")):
            body = {**site.plan(job), "environment": str(folder_asked)}
            body["environment_hash"] = folder_asked.name
            body["environment_mark"] = mark_of(folder_asked)
            body["node_folder"] = str(site.node_folder)
            plan = plans.from_json(json.dumps(body))
            site.parts.services.launches.keep(plan)
            size_mb = _size(folder_asked) / 1e6
            print(f"{title} environment of {size_mb:,.0f} MB in 10,000 files:", flush=True)
            ask(site, folder_asked, plan, options.nodes)
        print("peers, of the first one:")
        top = Path(folder)
        peer("cp -r", environment, top, options.nodes, 'cp -r "$1" "$2"')
        peer("tar | tar", environment, top, options.nodes, 'tar -C "$1" -c . | tar -C "$2" -x')


if __name__ == "__main__":
    main()
