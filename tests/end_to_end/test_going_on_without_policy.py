"""A job whose worker is killed goes on from its checkpoint; nothing in its file asks for that."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from end_to_end.yard_under_test import Yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(240)]

STEPS = 12
TRAIN = """
import json, os, sys, time, urllib.request
from pathlib import Path

STEPS, how = 12, sys.argv[1]
attempt = int(os.environ["TORCHYARD_ATTEMPT_NUMBER"])
folder = Path("outputs/checkpoints")
saved = [json.loads(file.read_text()) for file in folder.glob("*/manifest.json")]
newest = max(saved, key=lambda each: each["step"], default={"step": 0, "saved_at": 0})
began_at = int(time.time() * 1000)
print(f"attempt {attempt} begins at step {newest['step']}", flush=True)


def send(path, body):
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/" + path,
        json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], **body}).encode(),
        {"Content-Type": "application/json",
         "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
    )
    urllib.request.urlopen(request, timeout=60).read()


if newest["step"]:
    note = {"step": newest["step"], "saved_at": newest["saved_at"], "began_at": began_at}
    send("set-tag", {"key": "torchyard.resumed_from", "value": json.dumps(note)})
for step in range(newest["step"], STEPS):
    time.sleep(0.01)
    now = int(time.time() * 1000)
    send("log-metric", {"key": "loss", "value": 0.9 ** step, "timestamp": now, "step": step})
    if step % 4 == 3 and how != "unsaved":
        checkpoint = folder / f"step-{step + 1:08d}"
        checkpoint.mkdir(parents=True)
        part = checkpoint / "part"
        part.write_text(json.dumps({"step": step + 1, "saved_at": int(time.time() * 1000)}))
        part.replace(checkpoint / "manifest.json")
    if step == 6 and attempt == 1:
        if how == "raises":
            raise ValueError("the data is wrong")
        print("waiting", flush=True)
        time.sleep(120)
"""


def create(yard: Yard, write_job: Callable[..., str], how: str) -> str:
    name = f"goes-on-{how}"
    yard("job", "create", "-f", write_job({"name": name, "command": f"python train.py {how}"},
                                          train=TRAIN))  # fmt: skip
    return name


def kill_worker(yard: Yard, name: str) -> None:
    wait_until(lambda: b"waiting" in b"".join(yard.logs(name).values()), 120, "it has trained")
    os.kill(yard.worker_of(name)["pid"], signal.SIGKILL)


def steps(yard: Yard, name: str) -> list[int]:
    points = yard.get(f"jobs/{name}/metrics/history?key=loss")["points"]
    return sorted(step for step, _, _ in points)


def test_a_job_that_saves_checkpoints_goes_on_in_one_series(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    name = create(yard, write_job, "saved")
    kill_worker(yard, name)
    done = yard.completed(name)
    assert (done["attempt"], done["exit_code"], done["error"]) == (2, 0, None)
    assert steps(yard, name) == list(range(STEPS))
    first, second = yard.logs_of_attempts(name)
    assert first.startswith("attempt 1 begins at step 0\n")
    assert second == "attempt 2 begins at step 4\n"
    assert any(
        notice.startswith("attempt 1 ended: the worker of node 0")
        and notice.endswith("; the job goes on from checkpoint `step-00000004`")
        for notice in done["notices"]
    )


def test_a_job_without_checkpoints_fails(yard: Yard, write_job: Callable[..., str]) -> None:
    name = create(yard, write_job, "unsaved")
    kill_worker(yard, name)
    ended = yard.wait(name)
    assert (ended["status"], ended["attempt"]) == ("Failed", 1)
    assert ended["error"]["code"] == "worker_lost"


def test_a_job_whose_script_raises_fails(yard: Yard, write_job: Callable[..., str]) -> None:
    name = create(yard, write_job, "raises")
    ended = yard.wait(name)
    assert (ended["status"], ended["attempt"]) == ("Failed", 1)
    assert ended["error"]["code"] == "exception"
    files = [file["path"] for file in yard.get(f"jobs/{name}/files")["value"]]
    assert "outputs/checkpoints/step-00000004/manifest.json" in files
