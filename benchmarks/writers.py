"""Who writes as people do: processes of MLflow's own client, and jobs whose relays log.

    python benchmarks/writers.py --mlflow-python PYTHON [--writers 8] [--calls 500]
                                 [--jobs 50] [--seconds 30] [--rounds 3] [--sources SRC SRC]

`--sources` names two `src` folders, such as those of two worktrees: both are measured in turn, in
one run. In each round eight processes call `log_metric` by MLflow's client; then 50 jobs log 20
metrics twice a second, each through its relay, alone at first and then beside those processes.
PYTHON has mlflow installed. `server_us` is of the server's processor.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from figures import YARD, Case, clean_variables, compare, processor_s, progress, remove, run
from history import Peer
from server import torchyard_server

_METRICS, _PAUSE_S = 20, 0.5
# What a training script does, without mlflow: the relay is called as mlflow's client calls it.
_SCRIPT = f"""
import json, os, sys, time, urllib.request
from pathlib import Path
folder, seconds, name = Path(sys.argv[1]), float(sys.argv[2]), os.environ["MLFLOW_RUN_ID"]
url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-batch"
headers = {{"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"],
           "Content-Type": "application/json"}}
def log(step):
    now = int(time.time() * 1000)
    points = [{{"key": f"metric{{n}}", "value": step / 7, "timestamp": now, "step": step}}
              for n in range({_METRICS})]
    body = json.dumps({{"run_id": name, "metrics": points}}).encode()
    urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60).read()
step = 0
for phase in ("alone", "beside"):
    (folder / f"ready-{{phase}}-{{name}}").touch()
    while not (folder / f"go-{{phase}}").exists():
        time.sleep(0.05)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        log(step)
        step += 1
        time.sleep({_PAUSE_S})
    (folder / f"counted-{{phase}}-{{name}}").write_text(str(step))
    (folder / f"counted-{{phase}}-{{name}}").rename(folder / f"steps-{{phase}}-{{name}}")
"""


@dataclass(frozen=True)
class Sizes:
    writers: int
    calls: int
    jobs: int
    seconds: float


def measure(source: str, python: str, sizes: Sizes) -> dict[str, float]:
    """One server on an empty folder."""
    if source:
        os.environ["PYTHONPATH"] = str(Path(source).resolve())
    # The thread that sends it changes the environment while others read it: a writer may fail.
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    home = Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    try:
        with torchyard_server(home) as (url, pid, _):
            token = (home / "token").read_text().strip()
            peer = Peer("ours", python, url, token, pid, home / "torchyard.db", str)
            alone = _clients(peer, sizes)
            figures = {f"clients_{name}": value for name, value in alone.items()}
            if sizes.jobs:
                figures |= _jobs(peer, home, sizes)
            return figures
    finally:
        remove(home)


def _clients(peer: Peer, sizes: Sizes) -> dict[str, float]:
    return peer.write("client", "single", sizes.writers, sizes.calls, 1)


def _jobs(peer: Peer, home: Path, sizes: Sizes) -> dict[str, float]:
    folder = home / "writers"
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "log.py").write_text(_SCRIPT)
    variables = clean_variables(TORCHYARD_HOME=str(home))
    compute = {"name": "many", "type": "amlcompute", "max_instances": sizes.jobs}
    (folder / "compute.yml").write_text(yaml.safe_dump(compute))
    run([YARD, "compute", "create", "-f", folder / "compute.yml"], variables)
    document: dict[str, Any] = {
        "command": f"python log.py {folder} {sizes.seconds:g}",
        "code": str(code),
        "environment": "python",
        "compute": "many",
    }
    (folder / "job.yml").write_text(yaml.safe_dump(document))
    for number in range(sizes.jobs):
        progress(f"job {number + 1} of {sizes.jobs}")
        run([YARD, "job", "create", "-f", folder / "job.yml"], variables)
    figures = _relays(peer, folder, "alone", sizes, besides=False)
    return figures | _relays(peer, folder, "beside", sizes, besides=True)


def _relays(peer: Peer, folder: Path, phase: str, sizes: Sizes, besides: bool) -> dict[str, float]:
    """Until the server has every point that the jobs logged.

    Args:
        besides: measure the clients meanwhile.
    """
    progress(f"jobs that log, {phase}")
    while len(list(folder.glob(f"ready-{phase}-*"))) < sizes.jobs:
        time.sleep(0.1)
    # Of the server alone: the jobs' workers are its children.
    before = _requests(peer), processor_s(peer.pid)
    started = time.monotonic()
    (folder / f"go-{phase}").touch()
    figures: dict[str, float] = {}
    if besides:
        clients = _clients(peer, sizes)
        del clients["server_us"]  # the relays' too
        figures = {f"{phase}_{name}": value for name, value in clients.items()}
    while len(files := list(folder.glob(f"steps-{phase}-*"))) < sizes.jobs:
        time.sleep(0.1)
    steps = {file.name.rpartition("-")[2]: int(file.read_text()) for file in files}
    for name, count in steps.items():
        while _points(peer, name) < count:
            time.sleep(0.1)
    took_s = time.monotonic() - started
    requests = _requests(peer) - before[0]
    figures[f"{phase}_requests_per_s"] = requests / took_s
    figures[f"{phase}_server_us"] = (processor_s(peer.pid) - before[1]) * 1e6 / requests
    figures[f"{phase}_until_stored_s"] = took_s
    return figures


def _requests(peer: Peer) -> float:
    """How many the server has answered."""
    counts = re.findall(
        r"^torchyard_http_requests_total\{.*\} (\S+)$", _get(peer, "/metrics"), re.M
    )
    return sum(map(float, counts))


def _points(peer: Peer, job: str) -> int:
    path = f"/v1/workspaces/default/jobs/{job}/metrics/history?key=metric{_METRICS - 1}"
    return len(json.loads(_get(peer, path))["points"])


def _get(peer: Peer, path: str) -> str:
    headers = {"Authorization": f"Bearer {peer.token}"}
    with urllib.request.urlopen(urllib.request.Request(peer.url + path, headers=headers)) as answer:
        text: str = answer.read().decode()
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mlflow-python", required=True, help="a Python that has mlflow installed")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--calls", type=int, default=500, help="of each writer")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30, help="how long the jobs log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sources", nargs="+", default=[""], help="`src` folders, one a case")
    arguments = parser.parse_args()
    sizes = Sizes(arguments.writers, arguments.calls, arguments.jobs, arguments.seconds)
    cases = [
        Case(source or "torchyard", partial(measure, source, arguments.mlflow_python, sizes))
        for source in arguments.sources
    ]
    compare(f"{sizes.writers} clients and {sizes.jobs} jobs", cases, arguments.rounds)


if __name__ == "__main__":
    main()
