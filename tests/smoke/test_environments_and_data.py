"""What jobs run in, read, write and log: environments, data, models, metrics."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(600)]

SHOW_VERSION = 'python -c "import importlib.metadata as of, sys; print(of.version(sys.argv[1]))" {}'

TRACK = """
import mlflow

mlflow.log_param("learning_rate", 0.1)
for step in range(5):
    mlflow.log_metric("loss", 1 / (step + 1), step=step)
mlflow.log_text("the best of five", "notes/best.txt")
print("mlflow", mlflow.__version__)
"""

COPY = """
grep -c . ${{inputs.digits}}/digits.csv
touch ${{inputs.digits}}/new 2>/dev/null && exit 3
sort ${{inputs.digits}}/digits.csv > ${{outputs.sorted}}/digits.csv
"""


@pytest.mark.parametrize(("form", "package"), [("pip", "packaging"), ("conda", "zipp")])
def test_an_environment_is_built_from_its_file(
    yard: Yard,
    write_job: Callable[..., str],
    tmp_path: Path,
    pinned: dict[str, str],
    form: str,
    package: str,
) -> None:
    file = tmp_path / "environment"
    requirement = f"{package}=={pinned[package]}"
    if form == "pip":
        file.write_text(f"{requirement}\n")
        option = "--pip-requirements"
    else:
        python = f"python={sys.version_info.major}.{sys.version_info.minor}"
        file.write_text(yaml.safe_dump({"dependencies": [python, "pip", {"pip": [requirement]}]}))
        option = "--conda-file"
    yard("environment", "create", "-n", form, option, str(file))
    yard("environment", "build", form)
    shown = json.loads(yard("environment", "show", form, "-o", "json"))
    assert shown["build"] == "ready" and requirement in shown["packages"]

    exported = tmp_path / "exported"
    yard("environment", "export", "-n", form, "--format", "requirements", "--file", str(exported))
    assert requirement in exported.read_text()
    command = SHOW_VERSION.format(package)
    job = {"name": form, "command": command, "environment": f"azureml:{form}:1"}
    yard("job", "create", "-f", write_job(job))
    yard.completed(form)
    assert yard.logs(form)["user_logs/std_log.txt"].decode() == f"{pinned[package]}\n"


def test_a_job_reads_a_data_asset_and_its_output_becomes_another(
    yard: Yard, write_job: Callable[..., str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "digits.csv").write_text("3\n1\n2\n")
    yard("data", "create", "-n", "digits", "-p", str(data), "--type", "uri_folder")
    job = {
        "name": "sorts",
        "command": COPY,
        "inputs": {
            "digits": {"type": "uri_folder", "path": "azureml:digits:1", "mode": "ro_mount"}
        },
        "outputs": {"sorted": {"type": "uri_folder", "name": "sorted-digits"}},
    }
    yard("job", "create", "-f", write_job(job))
    yard.completed("sorts")
    assert yard.logs("sorts")["user_logs/std_log.txt"] == b"3\n"

    copies = tmp_path / "copies"
    yard("data", "download", "-n", "sorted-digits", "-v", "1", "-p", str(copies))
    yard("job", "download", "-n", "sorts", "--output-name", "sorted", "-p", str(copies))
    files = list(copies.rglob("digits.csv"))
    assert [file.read_text() for file in files] == ["1\n2\n3\n"] * 2


def test_mlflow_logs_metrics_and_artifacts_into_the_job(
    yard: Yard, write_job: Callable[..., str], tmp_path: Path, tracking_environment: str
) -> None:
    job = {"name": "tracked", "command": "python track.py", "environment": tracking_environment}
    yard("job", "create", "-f", write_job(job, track=TRACK), "--stream")
    yard.completed("tracked")
    assert yard.logs("tracked")["user_logs/std_log.txt"].startswith(b"mlflow 3.")
    assert yard.read("jobs/tracked/files/notes/best.txt") == b"the best of five"

    points = tmp_path / "points.csv"
    yard("job", "metrics", "tracked", "--key", "loss", "--export", str(points))
    rows = [line.split(",") for line in points.read_text().splitlines()]
    assert [(row[0], int(row[1]), float(row[-1])) for row in rows[1:]] == [
        ("loss", step, 1 / (step + 1)) for step in range(5)
    ], rows
    assert "loss" in yard("job", "metrics", "tracked", "--plot", "loss")


def test_a_model_is_registered_and_downloaded(
    yard: Yard, write_job: Callable[..., str], tmp_path: Path
) -> None:
    command = "mkdir -p outputs/net && printf weights > outputs/net/model.bin"
    yard("job", "create", "-f", write_job({"name": "trains", "command": command}))
    yard.completed("trains")
    source = "azureml://jobs/trains/outputs/artifacts/paths/outputs/net"
    for _ in range(2):
        yard("model", "create", "-n", "net", "-p", source)
    model = json.loads(yard("model", "show", "-n", "net", "-o", "json"))
    assert model["version"] == 2
    yard("model", "download", "-n", "net", "-p", str(tmp_path))
    (file,) = tmp_path.rglob("model.bin")
    assert file.read_bytes() == b"weights"
