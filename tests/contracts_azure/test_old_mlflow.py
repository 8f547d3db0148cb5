"""MLflow 1.23 inside a job, the newest that runs on Python 3.6."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from yard_under_test import Yard

import other_pythons

pytestmark = [pytest.mark.azure, pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parent
PACKAGES = ["mlflow==1.23.1", "protobuf<3.21", "setuptools<60"]


def test_files_are_logged_and_read_without_a_token(
    yard: Yard, variables: dict[str, str], tmp_path: Path
) -> None:
    python = "3.6" if other_pythons.find("3.6") else "3.8"
    conda = {"dependencies": [f"python={python}", "pip", {"pip": PACKAGES}]}
    document = {
        "name": "old-mlflow",
        "command": "python -W ignore log.py",
        "code": str(HERE / "in_job_old_mlflow"),
        "environment": {"conda_file": conda},
    }
    file = tmp_path / "job.yml"
    file.write_text(yaml.safe_dump(document))
    yard("job", "create", "-f", str(file))
    yard.completed("old-mlflow")
    printed = yard.logs("old-mlflow")["user_logs/std_log.txt"].decode()
    lines = [line.split(" ", 1) for line in printed.splitlines()]
    printed_by_word = {word: rest for word, rest in lines}
    shown = json.loads(yard("job", "show", "-n", "old-mlflow", "-o", "json"))
    artifact_uri = f"mlflow-artifacts:/{shown['params']['where'].split('/', 1)[1]}"
    assert artifact_uri.endswith("/old-mlflow/artifacts") and "yard_r_" not in artifact_uri
    assert (
        printed_by_word["logs"]
        == f"to mlflow-artifacts:/{'*' * 50}/{artifact_uri.split('/', 1)[1]}"
    )
    assert printed_by_word["listed"] == "['weights/weights.txt']"
    assert printed_by_word["read"] == "1 2 3"
    assert (printed_by_word["of"], printed_by_word["registered"]) == ("the run [3]", "[4]")
    assert printed_by_word["source"] == f"{artifact_uri}/model"
    assert [rest for word, rest in lines if word == "refused"] == ["401", "401"]
    assert yard.read("jobs/old-mlflow/files/weights/weights.txt") == b"1 2 3"
    assert yard.read("jobs/old-mlflow/files/weights.txt") == b"1 2 3"
