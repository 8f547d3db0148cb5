"""What sampling the resource use of a node costs, in percent of one core.

    python benchmarks/system_metrics.py [--seconds 60] [--rounds 3] [--mlflow-python PYTHON]

A job of four ranks, each with four idle processes of its own, sleeps; the worker's CPU time is
read from the kernel while it samples and delivers each second, and while it doesn't sample. Beside
it MLflow's own logging of system metrics, with psutil, into a file store, in a process that does
nothing else: `--mlflow-python` names a Python that has both; without it that peer is left out.
Both are asked for a sample each second, so that the figure is large enough to be read; at the
default of ten seconds a tenth of the difference is what it costs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from figures import YARD, Case, clean_variables, compare, processor_s, run, temporary_yard

RANK = """\
import subprocess, sys, time
for _ in range(4):
    subprocess.Popen(["sleep", sys.argv[1]])
time.sleep(float(sys.argv[1]))
"""
MLFLOW = """\
import os, sys, time
os.chdir(sys.argv[2])
import mlflow
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
mlflow.set_tracking_uri("sqlite:///mlflow.db")
with mlflow.start_run() as run:
    monitor = SystemMetricsMonitor(run.info.run_id, sampling_interval=1)
    monitor.start()
    time.sleep(3)
    before, start = time.process_time(), time.monotonic()
    time.sleep(float(sys.argv[1]))
    print("share", 100 * (time.process_time() - before) / (time.monotonic() - start))
    monitor.finish()
"""
_SETTLING_S = 6.0


class Jobs:
    """Runs jobs on a torchyard of the benchmark's own."""

    def __init__(self, variables: Mapping[str, str], folder: Path, seconds: float) -> None:
        self._variables = variables
        self._folder = folder
        self._seconds = seconds
        (folder / "rank.py").write_text(RANK)

    def share(self, system_metrics: object) -> dict[str, float]:
        """Percent of a core that the worker takes."""
        lasts_s = self._seconds + 60
        job = {
            "command": f"python rank.py {lasts_s:.0f}",
            "code": ".",
            "environment": "python",
            "distribution": {"type": "pytorch", "process_count_per_instance": 4},
            "torchyard": {"system_metrics": system_metrics},
        }
        file = self._folder / "job.yml"
        file.write_text(json.dumps(job))
        name = json.loads(self._yard("job", "create", "-f", file, "-o", "json"))["name"]
        home = Path(self._variables["TORCHYARD_HOME"])
        pid = self._worker(home, name)
        time.sleep(_SETTLING_S)
        before, start = processor_s(pid), time.monotonic()
        time.sleep(self._seconds)
        used_s = processor_s(pid) - before
        share = 100 * used_s / (time.monotonic() - start)
        self._yard("job", "cancel", "-n", name)
        return {"core_percent": share}

    def _worker(self, home: Path, name: str) -> int:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if (
                json.loads(self._yard("job", "show", "-n", name, "-o", "json"))["status"]
                == "Running"
            ):
                files = sorted(home.rglob("worker.json"), key=lambda file: file.stat().st_mtime)
                if files:
                    return int(json.loads(files[-1].read_text())["pid"])
            time.sleep(0.5)
        raise SystemExit(f"job `{name}` does not run")

    def _yard(self, *words: str | Path) -> str:
        return run([YARD, *words], self._variables, self._folder)


def _mlflow(python: str, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, "-c", MLFLOW, str(seconds), folder],
            env=clean_variables(),
            capture_output=True,
            text=True,
        )
        for line in done.stdout.splitlines():
            if line.startswith("share "):
                return {"core_percent": float(line.split()[1])}
        raise SystemExit(done.stderr)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mlflow-python", default="", help="a Python that has mlflow and psutil")
    arguments = parser.parse_args()
    with temporary_yard() as variables, tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(variables, Path(folder), arguments.seconds)
        cases = [
            Case("a sample each second", lambda: jobs.share({"interval": "1s"})),
            Case("no samples", lambda: jobs.share(False)),
        ]
        if arguments.mlflow_python:
            python = arguments.mlflow_python
            cases.append(Case("mlflow, each second", lambda: _mlflow(python, arguments.seconds)))
        else:
            print("mlflow is left out: name a Python that has it with --mlflow-python")
        compare("resource use, sampled", cases, arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
