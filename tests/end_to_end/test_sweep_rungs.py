"""ASHA and Hyperband on the digits example: real trials that pause, and go on from checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from end_to_end.yard_under_test import REPOSITORY, Yard

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("resumable_environment"),
]

LOWEST, EPOCHS = 4, 16
STEPS = 45  # of an epoch: 1,437 images by 32


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REPOSITORY / "examples/sweep", tmp_path / "sweep"))


@pytest.mark.parametrize(
    ("policy", "trials", "lowest"),
    [("asha", 5, 5), pytest.param("hyperband", 7, 4, marks=pytest.mark.long)],
)
def test_promoted_trials_go_on_from_their_checkpoints(
    yard: Yard, example: Path, policy: str, trials: int, lowest: int
) -> None:
    """
    Args:
        lowest: how many of the trials begin at the lowest rung.
    """
    yard("job", "create", "-f", _small(example, policy, trials), "-n", policy)
    yard.completed(policy, timeout_s=900)
    rungs = yard.get(f"sweeps/{policy}/rungs")["value"]
    by_name = {trial["name"]: trial for trial in yard.get(f"sweeps/{policy}/trials")["trials"]}
    first = [rung for rung in rungs if rung["bracket"] == 0 and rung["interval"] == LOWEST]
    assert [rung["rank"] for rung in first] == list(range(1, lowest + 1))
    values = [rung["value"] for rung in first]
    assert values == sorted(values, reverse=True)
    assert {rung["decision"] for rung in rungs} <= {"promoted", "stopped", "ended"}
    assert first[0]["decision"] != "stopped" and first[-1]["decision"] != "promoted"
    promoted = {rung["trial"] for rung in rungs if rung["decision"] == "promoted"}
    assert promoted
    for name in promoted:
        _went_on_from_its_checkpoint(yard, name)
    for rung in rungs:
        if rung["decision"] == "stopped":
            trial = by_name[rung["trial"]]
            assert (trial["status"], trial["outcome"]) == ("Canceled", "stopped")
            assert trial["reason"].startswith(policy) and trial["intervals"] < EPOCHS
    completed = [trial for trial in by_name.values() if trial["outcome"] == "completed"]
    assert completed and {trial["intervals"] for trial in completed} == {EPOCHS}
    shown = yard("job", "show", "-n", policy)
    assert "DECISION" in shown and f"1 of {lowest}" in shown


def _small(example: Path, policy: str, trials: int) -> str:
    """The example's file with rungs at 4 and 8 of 16 epochs."""
    document = yaml.safe_load((example / "sweep.yml").read_text())
    document["limits"]["max_total_trials"] = trials
    command = document["trial"]["command"]
    document["trial"]["command"] = command.replace("--epochs 27", f"--epochs {EPOCHS}")
    document["torchyard"]["early_termination"] = {
        "type": policy,
        "min_intervals": LOWEST,
        "max_intervals": EPOCHS,
        "reduction_factor": 2,
    }
    file = example / "small.yml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def _went_on_from_its_checkpoint(yard: Yard, name: str) -> None:
    """Its last attempt began where the one before was stopped, and no epoch is there twice."""
    assert len(yard.job(name)["attempts"]) >= 2
    log = yard.read(f"jobs/{name}/files/user_logs/std_log.txt").decode()
    resumed_from = int(log.split("resumed from ")[1].split()[0])
    assert resumed_from >= LOWEST * STEPS, log
    first_epoch = int(log.split("epoch ")[1].split()[0])
    assert first_epoch == resumed_from // STEPS + 1, log
    points = yard.get(f"jobs/{name}/metrics/history?key=accuracy")["points"]
    steps = [step for step, *_ in points]
    assert steps == [STEPS * epoch for epoch in range(1, len(steps) + 1)]
