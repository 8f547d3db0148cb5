"""0 → 4 → 0 machines on Ray's autoscaler: a job of torchyard beside a program of Ray's own.

    python benchmarks/ray_scaling.py [--rounds 3] [--home FOLDER]

Up: from submission until code runs on four machines. Down: from the end of that code until the last
machine is gone. The autoscaler (v2) starts its machines on this one, by Ray's own provider for
that, and ends those that have been idle for 3 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from figures import CREATE, YARD, Case, compare, run, temporary_yard

from torchyard.base.home.uv import find_uv
from torchyard.executors.ray.ray_environment import RayEnvironments, RayVersion

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from ray.ray_cluster import FAKE_HEAD, RayCluster, wait_until

MACHINES = 4
LIMIT_S = 120
SCRIPT = """
import time
with open(LINES, "a") as lines:
    print(time.time(), file=lines, flush=True)
"""
JOB = f"""
command: python script.py
code: .
environment: python
compute: away
resources: {{instance_count: {MACHINES}}}
distribution: {{type: pytorch, process_count_per_instance: 1}}
"""
COMPUTE = """
name: away
max_instances: {machines}
torchyard: {{engine: ray, address: "{address}", node_folder: {folder}}}
"""
# One task on each machine of a group, as Ray's guide has it; the time when it was asked for.
RAYS_OWN = """
import sys, time, ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Place
address, machines, script = sys.argv[1], int(sys.argv[2]), open(sys.argv[3]).read()
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
print(time.time())
group = ray.util.placement_group([{"CPU": 1}] * machines, "STRICT_SPREAD")
ray.get(group.ready())
task = ray.remote(lambda: exec(script, {}))
ray.get([
    task.options(num_cpus=1, scheduling_strategy=Place(group, number)).remote()
    for number in range(machines)
])
ray.util.remove_placement_group(group)
"""
# A line at each change: the time, and how many machines there are beside the head.
WATCH = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
before = None
while True:
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    count = sum(node != sys.argv[2] for node in alive)
    if count != before:
        print(time.time(), count, flush=True)
    before = count
    time.sleep(0.1)
"""


class Machines:
    """How many there are, as Ray says."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def now(self) -> tuple[float, int]:
        """Since when, in seconds since 1970, and how many; -1 before it is known."""
        lines = self._file.read_text().splitlines()
        if not lines:
            return 0.0, -1
        since, count = lines[-1].split()
        return float(since), int(count)

    def wait_for_none(self) -> float:
        """Since when there are none."""
        wait_until(lambda: self.now[1] == 0, LIMIT_S, "no machine")
        return self.now[0]


@contextmanager
def watched(cluster: RayCluster, folder: Path) -> Iterator[Machines]:
    file = folder / "machines"
    command = [cluster.environment.python, "-I", "-c", WATCH, cluster.address, FAKE_HEAD]
    with open(file, "wb") as output, subprocess.Popen(command, stdout=output) as process:
        try:
            yield Machines(file)
        finally:
            process.kill()


def scaled(machines: Machines, folder: Path, ask: Callable[[], float]) -> dict[str, float]:
    """Seconds up and down; `ask` runs to its end, and says when the machines were asked for."""
    lines = folder / "lines"
    lines.unlink(missing_ok=True)
    machines.wait_for_none()
    asked_at = ask()
    began = [float(line) for line in lines.read_text().split()]
    assert len(began) == MACHINES, f"{len(began)} of {MACHINES} ranks began"
    ended_at = max(began)
    return {"up_s": ended_at - asked_at, "down_s": machines.wait_for_none() - ended_at}


def by_torchyard(folder: Path, variables: Mapping[str, str]) -> float:
    asked_at = time.time()
    run(CREATE, variables, folder)
    return asked_at


def by_ray(folder: Path, cluster: RayCluster) -> float:
    words = [cluster.address, str(MACHINES), str(folder / "script.py")]
    command = [cluster.environment.python, "-I", "-c", RAYS_OWN, *words]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(printed.split("\n")[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--home", type=Path, help="a TORCHYARD_HOME to use and keep")
    arguments = parser.parse_args()
    # Ray's clients of a cluster without a token need no other.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    with (
        temporary_yard(arguments.home) as variables,
        tempfile.TemporaryDirectory() as temporary,
    ):
        folder = Path(temporary)
        environment = RayEnvironments(folder, find_uv(), os.environ).get(RayVersion())
        cluster = RayCluster.with_autoscaler(environment, MACHINES, with_token=False)
        try:
            code = folder / "code"
            code.mkdir()
            (code / "script.py").write_text(f"LINES = {str(code / 'lines')!r}\n{SCRIPT}")
            (code / "job.yml").write_text(JOB)
            compute = COMPUTE.format(
                machines=MACHINES, address=cluster.address, folder=folder / "nodes"
            )
            (code / "away.yml").write_text(compute)
            run([YARD, "compute", "create", "-f", "away.yml"], variables, code)
            with watched(cluster, folder) as machines:
                scaled(machines, code, partial(by_torchyard, code, variables))  # makes all it needs
                ways = {
                    "torchyard": partial(by_torchyard, code, variables),
                    "Ray's own program": partial(by_ray, code, cluster),
                }
                cases = [
                    Case(name, partial(scaled, machines, code, ask)) for name, ask in ways.items()
                ]
                compare("0 → 4 → 0 machines of Ray's autoscaler", cases, arguments.rounds)
        finally:
            cluster.close()


if __name__ == "__main__":
    main()
