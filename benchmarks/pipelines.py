"""What a step costs: a pipeline beside Prefect, Dagster and Metaflow on this machine.

    python benchmarks/pipelines.py [--rounds 3] [--steps 200] [--peers PYTHON]

A step is a program that makes an empty file. In a chain each takes what the one before made; side
by side none takes anything. Prefect's and Dagster's steps are functions in one process that run
`true`; Metaflow's are processes, of which a tenth as many are made. `--peers` is a Python that has
`prefect`, `dagster` and `metaflow`; what it lacks is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from figures import YARD, Case, compare, processor_s, run, temporary_yard

PREFECT = """
import subprocess, sys, time
from prefect import flow, task
steps, is_chain = int(sys.argv[1]), sys.argv[2] == "chain"
@task
def step(before):
    subprocess.run(["true"], check=True)
    return 1
@flow(log_prints=False)
def chain():
    made = 0
    for _ in range(steps):
        made = step(made)
@flow
def wide():
    for each in [step.submit(0) for _ in range(steps)]:
        each.result()
begun = time.monotonic()
(chain if is_chain else wide)()
print(time.monotonic() - begun)
"""
DAGSTER = """
import subprocess, sys, time
import dagster
steps, is_chain = int(sys.argv[1]), sys.argv[2] == "chain"
def make(number):
    ins = {"before": dagster.In()} if is_chain and number else {}
    @dagster.op(name=f"step_{number}", ins=ins)
    def step(context, **before):
        subprocess.run(["true"], check=True)
        return 1
    return step
@dagster.job
def pipeline():
    made = None
    for number in range(steps):
        op = make(number)
        made = op(made) if is_chain and number else op()
begun = time.monotonic()
assert pipeline.execute_in_process().success
print(time.monotonic() - begun)
"""
METAFLOW_STEP = """
    @step
    def step_{number}(self):
        subprocess.run(["true"], check=True)
        self.next(self.{after})
"""
METAFLOW = """
import subprocess
from metaflow import FlowSpec, step
class Chain(FlowSpec):
    @step
    def start(self):
        self.next(self.step_0)
{steps}
    @step
    def end(self):
        pass
if __name__ == "__main__":
    Chain()
"""


def document(steps: int, is_chain: bool, word: str) -> dict[str, Any]:
    """A pipeline none of whose steps has run before, where the word is new."""

    def step(number: int) -> dict[str, Any]:
        takes = {"before": f"${{{{parent.jobs.s{number - 1}.outputs.made}}}}"}
        return {
            "command": f": {word} {number}; touch ${{{{outputs.made}}}}/file",
            "environment": "python",
            "outputs": {"made": None},
            "inputs": takes if is_chain and number else {},
        }

    jobs = {f"s{number}": step(number) for number in range(steps)}
    return {"type": "pipeline", "jobs": jobs}


def torchyard(variables: Mapping[str, str], steps: int, is_chain: bool) -> dict[str, float]:
    """Seconds a step, the server's processor a step, and what the server grew by."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pipeline.yml")
        file.write_text(json.dumps(document(steps, is_chain, str(time.time()))))
        pid = _server(variables)
        before_s, before_mb = processor_s(pid), _memory_mb(pid)
        begun = time.monotonic()
        run([YARD, "job", "create", "-f", file, "--stream"], variables)
        wall_s = time.monotonic() - begun
        used_s, used_mb = processor_s(pid), _memory_mb(pid)
        begun = time.monotonic()
        run([YARD, "job", "create", "-f", file, "--stream"], variables)
        again_s = time.monotonic() - begun
        begun = time.monotonic()
        run([YARD, "job", "validate", file], variables)
        return {
            "s_a_step": wall_s / steps,
            "server_ms_a_step": (used_s - before_s) / steps * 1000,
            "server_grew_mb": used_mb - before_mb,
            "reused_again_s": again_s,
            "validate_s": time.monotonic() - begun,
        }


def by_program(python: str, program: str, steps: int, shape: str) -> dict[str, float]:
    words = [python, "-c", program, str(steps), shape]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return {"s_a_step": float(done.stdout.split()[-1]) / steps}


def metaflow(python: str, steps: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "chain.py")
        last = steps - 1
        made = "".join(
            METAFLOW_STEP.format(
                number=number, after="end" if number == last else f"step_{number + 1}"
            )
            for number in range(steps)
        )
        file.write_text(METAFLOW.replace("{steps}", made))
        begun = time.monotonic()
        subprocess.run(
            [python, file, "run"], capture_output=True, check=True, cwd=folder,
            env={"USERNAME": "me", "HOME": folder, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        return {"s_a_step": (time.monotonic() - begun) / (steps + 2)}


def _memory_mb(pid: int) -> float:
    """Of one process, without its children."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("Rss:")) / 1024


def _server(variables: Mapping[str, str]) -> int:
    run([YARD, "job", "list"], variables)
    (file,) = Path(variables["TORCHYARD_HOME"]).glob("server*.json")
    return int(json.loads(file.read_text())["pid"])


def _has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the peers")
    options = parser.parse_args()
    steps, peers = options.steps, options.peers
    with temporary_yard() as variables:
        torchyard(variables, 2, True)  # the environment
        for shape in ("chain", "side by side"):
            is_chain = shape == "chain"
            cases = [Case("torchyard", partial(torchyard, variables, steps, is_chain))]
            for name, program in (("prefect", PREFECT), ("dagster", DAGSTER)):
                if _has(peers, name):
                    measure = partial(by_program, peers, program, steps, shape)
                    cases.append(Case(f"{name}, in one process", measure))
            if is_chain and _has(peers, "metaflow"):
                cases.append(Case("metaflow", partial(metaflow, peers, steps // 10)))
            compare(f"{steps} steps, {shape}", cases, options.rounds)


if __name__ == "__main__":
    main()
