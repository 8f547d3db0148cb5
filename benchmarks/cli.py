"""What a command costs: `yard job list` and `yard --help` beside Python itself and other commands.

python benchmarks/cli.py [--rounds 10] [--mlflow-python PYTHON]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from figures import YARD, Case, compare, run, temporary_yard

JOBS = 20


def measure(command: list[str | Path], variables: Mapping[str, str]) -> dict[str, float]:
    """Wall and CPU seconds of one command, its children included."""
    started = time.monotonic()
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return {"wall_s": time.monotonic() - started, "cpu_s": used.ru_utime + used.ru_stime}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--mlflow-python", help="a Python that has mlflow installed")
    arguments = parser.parse_args()
    with temporary_yard() as variables, tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job.yml")
        job.write_text("command: 'true'\nenvironment: python\n")
        for _ in range(JOBS - 1):
            run([YARD, "job", "create", "-f", job], variables)
        run([YARD, "job", "create", "-f", job, "--stream"], variables)

        commands: dict[str, list[str | Path]] = {
            "yard job list": [YARD, "job", "list"],
            "yard --help": [YARD, "--help"],
            "python -c pass": [sys.executable, "-c", "pass"],
            "pip list": [sys.executable, "-m", "pip", "list"],
        }
        if arguments.mlflow_python:
            commands["mlflow --help"] = [arguments.mlflow_python, "-m", "mlflow", "--help"]
        else:
            print("mlflow is left out: name a Python that has it with --mlflow-python")
        cases = [Case(name, partial(measure, line, variables)) for name, line in commands.items()]
        compare(f"One command, {JOBS} jobs on the server", cases, arguments.rounds)


if __name__ == "__main__":
    main()
