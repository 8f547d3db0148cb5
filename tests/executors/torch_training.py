"""One job file trains with torch on this machine and on an engine's, and comes to the same; a
module of each engine's tests inherits this.

Two nodes of two ranks over gloo, each rank started by itself (examples/digits) and each node by
torchrun (examples/torchrun); only the name of the compute differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from end_to_end.shared_torch import REQUIREMENTS
from end_to_end.yard_under_test import Yard
from executors.listening_yard import CLUSTER

_LIMIT_S = 500
_RANKS = 4
# Ranks add their gradients in another order each time; three epochs make little of that.
_LOSS, _ACCURACY = 0.05, 0.03
# Two ranks write to one log, each line's text and its end apart.
_RANK = r"RANK (\d) LOCAL_RANK (\d) GROUP_RANK (\d) WORLD_SIZE 4"
_SHORT = ("--set", "inputs.epochs=3", "--set", "distribution.process_count_per_instance=2")


@dataclass(frozen=True)
class Outcome:
    """Of one run. `metrics` are the values by key and step, `logs` by their paths."""

    metrics: dict[str, dict[int, float]]
    artifacts: dict[str, int]
    logs: dict[str, str]


def trained(yard: Yard, *options: str) -> list[Outcome]:
    """On the server's machine, and on the engine's, side by side."""
    names = []
    for compute in ("local", CLUSTER):
        words = [*options, "--set", f"compute={compute}", "--query", "name", "-o", "tsv"]
        names.append(yard("job", "create", *words).strip())
    for name in names:
        yard.completed(name, _LIMIT_S)
    return [_outcome(yard, name) for name in names]


def _outcome(yard: Yard, name: str) -> Outcome:
    metrics = {}
    for metric in yard.get(f"jobs/{name}/metrics")["value"]:
        points = yard.get(f"jobs/{name}/metrics/history?key={metric['key']}")["points"]
        # torch may abort a rank at its end: the job is tried again, and logs each step again.
        metrics[metric["key"]] = {step: value for step, _, value in points}
    files = yard.get(f"jobs/{name}/files")["value"]
    artifacts = {
        file["path"]: file["size_bytes"] for file in files if file["path"].startswith("outputs")
    }
    logs = {path: text.decode() for path, text in yard.logs(name).items()}
    return Outcome(metrics, artifacts, logs)


class TorchTraining:
    """Inherit, and give a fixture `yard` of `listening_yard` whose home has the environment."""

    def test_a_rank_per_process(self, yard: Yard) -> None:
        here, there = trained(yard, "-f", "examples/digits/job.yml", *_SHORT)
        assert set(here.metrics["loss"]) == {1, 2, 3}
        assert there.metrics["loss"] == pytest.approx(here.metrics["loss"], rel=_LOSS)
        assert there.metrics["accuracy"] == pytest.approx(here.metrics["accuracy"], abs=_ACCURACY)
        assert there.artifacts == here.artifacts and "outputs/model.pt" in here.artifacts
        assert set(there.logs) == set(here.logs) and len(there.logs) == _RANKS
        for rank, path in enumerate(sorted(there.logs)):
            for outcome in (here, there):
                assert f"rank {rank} of {_RANKS}: started" in outcome.logs[path]

    def test_a_launcher_per_node(self, yard: Yard) -> None:
        requirements = f"environment.pip_requirements={REQUIREMENTS}"
        here, there = trained(yard, "-f", "examples/torchrun/job.yml", "--set", requirements)
        assert set(there.logs) == set(here.logs) and len(there.logs) == 2
        accuracies = []
        for outcome in (here, there):
            log = "".join(outcome.logs.values())
            ranks = re.findall(_RANK, log)
            assert sorted(ranks) == [tuple(of) for of in ("000", "110", "201", "311")], log
            accuracies.append(float(re.findall(r"test accuracy ([\d.]+)", log)[-1]))
        assert accuracies[1] == pytest.approx(accuracies[0], abs=_ACCURACY)
