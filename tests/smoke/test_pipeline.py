"""Steps hand their files on, and what the last ones made is downloaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from end_to_end.yard_under_test import REPOSITORY, Yard

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(600)]


@pytest.mark.usefixtures("torch_environment")
def test_three_steps_of_which_one_has_two_nodes_train_and_measure_a_model(
    yard: Yard, tmp_path: Path
) -> None:
    """As a folder of components that knows nothing of this repository."""
    folder = shutil.copytree(REPOSITORY / "examples/pipeline", tmp_path / "pipeline")
    file = str(folder / "pipeline.yml")
    yard("job", "create", "-f", file, "-n", "digits-pipeline", "--stream")
    yard.completed("digits-pipeline")
    steps = [f"digits-pipeline_{step}" for step in ("prep", "train", "evaluate")]
    for step in steps:
        yard.completed(step)
    assert sorted(yard.logs(steps[1])) == [
        f"user_logs/std_log_process_{rank}.txt" for rank in (0, 1)
    ]

    yard("job", "download", "-n", "digits-pipeline", "--all", "-p", str(tmp_path / "made"))
    outputs = tmp_path / "made/named-outputs"
    report = json.loads((outputs / "report/report.json").read_text())
    assert report["images"] == 360 and report["accuracy"] > 0.9
    assert (outputs / "model/model.pt").stat().st_size > 10_000
