"""Jobs on a warm Ray cluster of three nodes: torchyard beside `ray job submit`.

    python benchmarks/ray_launch.py [--rounds 4] [--home FOLDER]

From submission to the first line of the script, and from the death of a machine to the first line
of the next try. The cluster runs on this machine, and is started for the measurement.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from figures import CREATE, YARD, Case, compare, run, temporary_yard, timed_job

from torchyard.base.home.uv import find_uv
from torchyard.executors.ray.ray_environment import RayEnvironments, RayVersion

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from ray.ray_cluster import RayCluster, free_port, wait_until

PAUSE_S = 4.0
SCRIPT = """
import os, time
# `ray job submit` shows no output of a short job: its log is read too late.
with open(LINES, "a") as lines:
    print(time.time(), file=lines, flush=True)
if os.environ.get("TORCHYARD_ATTEMPT_NUMBER") == "1" and os.path.exists("wait"):
    time.sleep(600)
"""
JOB = """
command: {before}python script.py
code: .
environment: python
compute: away
resources: {{instance_count: {nodes}}}
distribution: {{type: pytorch, process_count_per_instance: 1}}
properties: {{torchyard.retry.max_attempts: "2", torchyard.retry.backoff_s: "0"}}
"""
COMPUTE = """
name: away
max_instances: 3
torchyard: {{engine: ray, address: "{address}", node_folder: {folder}}}
"""


def first_lines(folder: Path, after: float = 0.0) -> list[float]:
    """When ranks began that did so after a time, in seconds since 1970."""
    times = [float(line) for line in (folder / "lines").read_text().split()]
    return [at for at in times if at > after]


def timed(
    command: list[str | Path], variables: Mapping[str, str], folder: Path
) -> dict[str, float]:
    # What the job before leaves to do, on either side, is none of this one's time.
    time.sleep(PAUSE_S)
    (folder / "lines").unlink(missing_ok=True)
    return timed_job(command, variables, folder, lambda _: first_lines(folder))


def by_ray(folder: Path, cluster: RayCluster, url: str) -> dict[str, float]:
    variables = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    variables |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    command: list[str | Path] = [cluster.environment.ray, "job", "submit", "--address", url]
    # Like ours on a node with a core, not on the head, which has none.
    command += ["--entrypoint-num-cpus", "1", "--working-dir", "."]
    return timed([*command, "--", "python", "script.py"], variables, folder)


def recovery(folder: Path, variables: Mapping[str, str], cluster: RayCluster) -> dict[str, float]:
    """Seconds from the death of one of two machines to the second try's first line."""
    submitted_at = time.time()
    command: list[str | Path] = [YARD, "job", "create", "-f", "waiting.yml"]
    command += ["--query", "name", "-o", "tsv"]
    name = run(command, variables, folder).split()[-1]

    wait_until(lambda: len(first_lines(folder, submitted_at)) == 2, 60, "the first try")
    number = cluster.machine_of(cluster.job_processes("script.py")[0])
    killed_at = time.time()
    cluster.kill_machine(number)
    run([YARD, "job", "stream", name], variables, folder)
    cluster.start_node(number)
    return {"next_try_s": min(first_lines(folder, killed_at)) - killed_at}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--home", type=Path, help="a TORCHYARD_HOME to use and keep")
    arguments = parser.parse_args()
    with (
        temporary_yard(arguments.home) as variables,
        tempfile.TemporaryDirectory() as temporary,
    ):
        folder = Path(temporary)
        environments = RayEnvironments(folder, find_uv(), os.environ)
        environment = environments.get(RayVersion(extras=("default",)))
        port = free_port()
        options = ("--include-dashboard=true", f"--dashboard-port={port}")
        cluster = RayCluster(environment, with_token=False, head_options=options)
        try:
            code = folder / "code"
            code.mkdir()
            (code / "script.py").write_text(f"LINES = {str(code / 'lines')!r}\n{SCRIPT}")
            (code / "job.yml").write_text(JOB.format(nodes=1, before=""))
            (code / "waiting.yml").write_text(JOB.format(nodes=2, before="touch wait; "))
            compute = COMPUTE.format(address=cluster.address, folder=folder / "nodes")
            (code / "away.yml").write_text(compute)
            run([YARD, "compute", "create", "-f", "away.yml"], variables, code)
            timed(CREATE, variables, code)  # the environment and Ray's own are made
            cases = [
                Case("torchyard", partial(timed, CREATE, variables, code)),
                Case("ray job submit", partial(by_ray, code, cluster, f"http://127.0.0.1:{port}")),
            ]
            compare("A job on a warm Ray cluster", cases, arguments.rounds)
            again = [Case("torchyard", partial(recovery, code, variables, cluster))]
            compare("After the death of a machine", again, 1)
        finally:
            cluster.close()


if __name__ == "__main__":
    main()
