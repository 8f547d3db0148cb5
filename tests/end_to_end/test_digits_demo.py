"""The demo's job, whole, and with the server killed in the middle of it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from end_to_end.yard_under_test import Yard, wait_until

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("torch_environment"),
]

EPOCHS = 12
JOB_FILE = "examples/digits/job.yml"


def assert_every_metric(yard: Yard, name: str) -> None:
    """One point an epoch, in order, of both metrics; as often as torch had it tried."""
    steps = sorted([*range(1, EPOCHS + 1)] * yard.job(name)["attempt"])
    for key in ("loss", "accuracy"):
        points = yard.get(f"jobs/{name}/metrics/history?key={key}")["points"]
        assert [step for step, _, _ in points] == steps, key
    assert points[-1][2] >= 0.95


def test_digits_reaches_its_accuracy_and_its_model_is_registered(
    yard: Yard, tmp_path: Path
) -> None:
    printed = yard("job", "create", "-f", JOB_FILE, "--set", "name=digits", "--stream")
    assert float(re.findall(r"test accuracy ([\d.]+)", printed)[-1]) >= 0.95
    job = yard.completed("digits")
    assert [stage["name"] for stage in job["stages"]][-1] == "Post-Processing"
    assert_every_metric(yard, "digits")

    artifact = yard.read("jobs/digits/files/outputs/model.pt")
    source = "azureml://jobs/digits/outputs/artifacts/paths/outputs/model.pt"
    yard("model", "create", "-n", "digits", "-p", source)
    yard("model", "download", "-n", "digits", "-v", "1", "-p", str(tmp_path))
    (file,) = tmp_path.rglob("model.pt")
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(artifact).digest()


def test_a_job_outlives_its_server(yard: Yard) -> None:
    yard("job", "create", "-f", JOB_FILE, "--set", "name=orphan", "--set", "inputs.epochs=12")
    wait_until(
        lambda: "loss" in [metric["key"] for metric in yard.get("jobs/orphan/metrics")["value"]],
        420,
        "the first epoch is logged",
    )
    yard.kill_server()
    yard("server", "start")
    yard.completed("orphan")
    assert_every_metric(yard, "orphan")
    log = b"".join(yard.logs("orphan").values()).decode()
    assert log.count("epoch ") == EPOCHS and log.count("test accuracy") == 1
