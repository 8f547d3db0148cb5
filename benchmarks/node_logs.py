"""Logs of eight nodes at once, on their way to the server.

    .venv/bin/python benchmarks/node_logs.py [--megabytes 20] [--nodes 8] [--rounds 3]

Nodes that share no disk with a real server print as fast as they can; the clock stops when the job
has ended, and so the last byte is at the server. Each log is then compared by its hash: one byte
that is lost or twice ends the benchmark. Beside it: `cp` of as many bytes, and srun's own transport
of what as many tasks print, where Slurm is installed and this is root. Neither of them masks
secrets, keeps its place over a cut connection, or shows the output while the job runs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from figures import Case, clean_variables, compare

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from executors import remote_site
from executors.remote_site import RemoteSite
from slurm.slurm_cluster import SlurmCluster
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Job

# Lines of 100 bytes, as a training's; the first one tells when the node began.
_SCRIPT = """
import sys, time
rank, count = int(sys.argv[1]), int(sys.argv[2])
print(f"{time.time():<99.6f}", flush=True)
for number in range(count):
    print(f"rank {rank} step {number:09d} loss {number * 7919 % 100003:06d}".ljust(99))
"""
_LINE_BYTES = 100


def _lines(rank: int, count: int) -> Iterator[bytes]:
    """What a rank prints after its first line."""
    for number in range(count):
        text = f"rank {rank} step {number:09d} loss {number * 7919 % 100003:06d}"
        yield text.ljust(_LINE_BYTES - 1).encode() + b"\n"


def _expected(rank: int, count: int) -> str:
    digest = hashlib.sha256()
    for line in _lines(rank, count):
        digest.update(line)
    return digest.hexdigest()


def _checked(text: bytes, expected: str, name: str) -> float:
    """When the node began to print.

    Raises:
        SystemExit: something is missing, or there twice.
    """
    first, _, rest = text.partition(b"\n")
    if hashlib.sha256(rest).hexdigest() != expected:
        raise SystemExit(f"{name} is not what was printed: {len(text):,} bytes")
    return float(first)


def _figures(began_at: float, ended_at: float, nodes: int, count: int) -> dict[str, float]:
    seconds = ended_at - began_at
    return {"seconds": seconds, "mb_per_s": nodes * count * _LINE_BYTES / 1e6 / seconds}


def by_torchyard(site: RemoteSite, hashes: list[str], count: int) -> Mapping[str, float]:
    nodes = len(hashes)
    job = site.run(
        600,
        command=f"python -c '{_SCRIPT}' $RANK {count}",
        resources={"instance_count": nodes},
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        properties={"torchyard.log_quota_mb": "4096"},
    )
    ended_at = time.time()
    if job.error is not None:
        raise SystemExit(f"{job.error}\n{site.engine_logs()}")
    logs = dict(_logs(site, job))
    if len(logs) != nodes:
        raise SystemExit(f"logs of {nodes} ranks were expected, and these came: {sorted(logs)}")
    began_at = [_checked(file.read_bytes(), hashes[rank], str(file)) for rank, file in logs.items()]
    return _figures(min(began_at), ended_at, nodes, count)


def _logs(site: RemoteSite, job: Job) -> Iterator[tuple[int, Path]]:
    """The log of each rank at the server."""
    services = site.parts.services
    current = actions.get(services, "default", job.name)
    for file in artifacts.list_of(services, current):
        if "std_log" in file.path:
            digits = "".join(filter(str.isdigit, Path(file.path).stem))
            yield int(digits or 0), artifacts.file(services, current, file.path)


def by_cp(folder: Path, nodes: int, count: int) -> Mapping[str, float]:
    """One node's plain file copy of the same bytes."""
    source, target = folder / "logs", folder / "copy"
    if not source.exists():
        source.mkdir()
        for rank in range(nodes):
            with open(source / f"{rank}.txt", "wb") as file:
                file.writelines(_lines(rank, count))
    began_at = time.time()
    subprocess.run(["cp", "-r", source, target], check=True)
    figures = _figures(began_at, time.time(), nodes, count)
    shutil.rmtree(target)
    return figures


def by_srun(cluster: SlurmCluster, hashes: list[str], count: int) -> Mapping[str, float]:
    """A file for each task, written by srun from what the nodes' slurmstepd send it."""
    (cluster.folder / "print.py").write_text(_SCRIPT)
    nodes = len(hashes)
    script = f'exec {sys.executable} {cluster.folder}/print.py "$SLURM_PROCID" {count}'
    subprocess.run(
        ["srun", "--nodes=2", f"--ntasks={nodes}", "--overcommit", "--partition=low",
         f"--output={cluster.folder}/task-%t.txt", "sh", "-c", script],
        env=clean_variables(SLURM_CONF=str(cluster.config)), check=True, capture_output=True,
    )  # fmt: skip
    ended_at = time.time()
    began_at = [
        _checked((cluster.folder / f"task-{rank}.txt").read_bytes(), hashes[rank], f"task {rank}")
        for rank in range(nodes)
    ]
    return _figures(min(began_at), ended_at, nodes, count)


def _has_slurm() -> bool:
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    return os.geteuid() == 0 and all(
        shutil.which(program, path=path) for program in ("slurmctld", "slurmd", "munged", "srun")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=20, help="that each node prints")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    count = options.megabytes * 1_000_000 // _LINE_BYTES
    hashes = [_expected(rank, count) for rank in range(options.nodes)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchyard-bench-")))
        site = stack.enter_context(remote_site.serving(folder))
        with site.parts.services.db.write() as connection:
            connection.execute(sa.text(f"UPDATE computes SET max_instances = {options.nodes}"))
        site.run(600, command="true")  # the environment is built, and brought to the nodes
        cases = [
            Case("torchyard", partial(by_torchyard, site, hashes, count)),
            Case("cp -r", partial(by_cp, folder, options.nodes, count)),
        ]
        if _has_slurm():
            cluster = SlurmCluster(accounting=False).start()
            stack.callback(cluster.close)
            cases.append(Case("srun --output", partial(by_srun, cluster, hashes, count)))
        title = f"{options.megabytes} MB of log from each of {options.nodes} nodes"
        compare(title, cases, options.rounds)


if __name__ == "__main__":
    main()
