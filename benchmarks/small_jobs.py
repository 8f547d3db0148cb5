"""What a job of `true` costs in an environment that is there: torchyard beside srun.

    python benchmarks/small_jobs.py [--jobs 40] [--rounds 3]

Jobs of one process run one after the other; each is submitted by the SDK, and followed until its
end. Processor is that of the server and of everything that it starts, with the jobs' own shells;
the client's is apart. Slurm is one that this program starts on this machine, without accounting: it
needs root and what `make slurm-programs` installs, and is left out where that is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from figures import Case, clean_variables, compare, processor_s, temporary_yard

from slurm import slurm_cluster
from slurm.slurm_cluster import SlurmCluster
from torchyard import Client

JOB = {"command": "true", "environment": "python"}
SHELL = ["sh", "-c", "true"]


def by_torchyard(client: Client, server: int, jobs: int) -> dict[str, float]:
    own, whole = processor_s(server), processor_s(server, with_children=True)

    def one() -> float:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            job = client.jobs.create(JOB).stream(out=io.BytesIO())
        assert job.status == "Completed", job.status
        assert job.created_at is not None and job.ended_at is not None
        return (job.ended_at - job.created_at).total_seconds()

    figures = _times(one, jobs)
    time.sleep(1.0)  # the last job's worker ends, and is reaped
    own_s = processor_s(server) - own
    whole_s = processor_s(server, with_children=True) - whole
    return {
        **figures,
        "processor_ms": whole_s / jobs * 1000,
        "server_ms": own_s / jobs * 1000,
        "nodes_ms": (whole_s - own_s) / jobs * 1000,
    }


def by_srun(cluster: SlurmCluster, jobs: int) -> dict[str, float]:
    variables = clean_variables(SLURM_CONF=str(cluster.config))
    command = ["srun", "--partition=low", "--nodes=1", *SHELL]
    before = _used_by(cluster) + _used_by_children()
    figures = _times(lambda: _run(command, variables), jobs)
    after = _used_by(cluster) + _used_by_children()
    return {**figures, "processor_ms": (after - before) / jobs * 1000}


def by_shell(jobs: int) -> dict[str, float]:
    before = _used_by_children()
    figures = _times(lambda: _run(SHELL, os.environ), jobs)
    return {**figures, "processor_ms": (_used_by_children() - before) / jobs * 1000}


def _run(command: list[str], variables: Mapping[str, str]) -> float:
    subprocess.run(command, env=variables, cwd="/", check=True)
    return 0.0


def _times(act: Callable[[], float], jobs: int) -> dict[str, float]:
    """From asking to the end, as the client sees it; of the records, if `act` returns that."""
    walls, recorded = [], []
    for _ in range(jobs):
        begun = time.monotonic()
        recorded.append(act())
        walls.append(time.monotonic() - begun)
    figures = {
        "asked_to_ended_s": statistics.median(walls),
        "asked_to_ended_p95_s": sorted(walls)[jobs * 95 // 100],
    }
    return {**figures, "recorded_s": statistics.median(recorded)} if any(recorded) else figures


def _used_by(cluster: SlurmCluster) -> float:
    return sum(processor_s(pid, with_children=True) for pid in cluster.pids)


def _used_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def _slurm() -> Iterator[SlurmCluster | None]:
    if os.geteuid() != 0 or slurm_cluster.missing_programs():
        print("no Slurm, or not root: srun is left out", file=sys.stderr)
        yield None
        return
    cluster = SlurmCluster(accounting=False).start()
    try:
        yield cluster
    finally:
        cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with temporary_yard() as variables, _slurm() as cluster:
        home = Path(variables["TORCHYARD_HOME"])
        server = json.loads((home / "server.json").read_text())
        client = Client(url=server["url"], token=(home / "token").read_text().strip(), start=False)
        by_torchyard(client, server["pid"], 3)  # builds the environment
        jobs = options.jobs
        cases = [Case("torchyard", partial(by_torchyard, client, server["pid"], jobs))]
        if cluster is not None:
            cases.append(Case("srun", partial(by_srun, cluster, jobs)))
        cases.append(Case("sh, by hand", partial(by_shell, jobs)))
        compare(f"{jobs} jobs of true, one after the other", cases, options.rounds)


if __name__ == "__main__":
    main()
