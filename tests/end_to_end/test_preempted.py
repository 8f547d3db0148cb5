"""A training that is preempted goes on from its own checkpoint, its metrics in one series."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from end_to_end.yard_under_test import Yard, running_yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

STEPS = 60
TRAIN = """
import json, os, signal, sys, time, urllib.request
from functools import partial
from pathlib import Path

STEPS = 60
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append("SIGTERM"))
attempt = os.environ["TORCHYARD_ATTEMPT_NUMBER"]
checkpoint = Path("outputs/checkpoint.json")
state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "loss": 100.0}
print(f"attempt {attempt} begins at step {state['step']}", flush=True)


def log(key, value, step):
    point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": key, "value": value,
             "timestamp": int(time.time() * 1000), "step": step}
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
        json.dumps(point).encode(),
        {"Content-Type": "application/json",
         "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
    )
    urllib.request.urlopen(request, timeout=60).read()


while state["step"] < STEPS:
    time.sleep(0.1)
    # The first attempt is never done before it is told to end, however long that takes.
    while attempt == "1" and state["step"] == STEPS - 2 and not told:
        time.sleep(0.1)
    state = {"step": state["step"] + 1, "loss": state["loss"] * 0.9}
    log("loss", state["loss"], state["step"])
    part = checkpoint.with_suffix(".part")
    part.write_text(json.dumps(state))
    part.replace(checkpoint)
    if told:
        print(f"attempt {attempt} was told {told[0]} and ends at step {state['step']}", flush=True)
        sys.exit(0)
print(f"attempt {attempt} is done", flush=True)
"""


@pytest.fixture(scope="module")
def yard(new_url: Callable[[], str]) -> Iterator[Yard]:
    """A server whose machine has room for one node at a time, over all its clusters."""
    with running_yard("preempted", new_url(), machine="nodes: 1\n") as yard:
        yard("compute", "create", "-n", "spare", "--tier", "low_priority", "--max-instances", "2")
        yard("compute", "create", "-n", "mine", "--max-instances", "2")
        yield yard


def points(yard: Yard, job: str) -> list[tuple[int, float]]:
    """Step and value of every point of the loss, as an MLflow client gets them."""
    server = json.loads((yard.home / "server.json").read_text())
    token = (yard.home / "token").read_text().strip()
    query = urllib.parse.urlencode({"run_id": job, "metric_key": "loss", "max_results": 25_000})
    request = urllib.request.Request(
        f"{server['url']}/mlflow/default/api/2.0/mlflow/metrics/get-history?{query}",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        metrics = json.load(answer).get("metrics", [])
    return [(int(metric["step"]), float(metric["value"])) for metric in metrics]


def trained(yard: Yard, job: str) -> None:
    """The whole series, every step once, the last attempt beginning where the first ended."""
    loss, expected = 100.0, []
    for step in range(1, STEPS + 1):
        loss *= 0.9
        expected.append((step, loss))
    assert points(yard, job) == expected
    first, second = yard.logs_of_attempts(job)
    begun, stopped = first.splitlines()
    assert begun == "attempt 1 begins at step 0"
    ended_at = stopped.rpartition(" ")[2]
    assert stopped == f"attempt 1 was told SIGTERM and ends at step {ended_at}"
    assert second == f"attempt 2 begins at step {ended_at}\nattempt 2 is done\n"
    assert 10 <= int(ended_at) < STEPS


def has_status(yard: Yard, job: str, status: str) -> bool:
    return bool(yard.job(job)["status"] == status)


def test_a_low_priority_training_is_preempted_and_goes_on(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    training = write_job(
        {"name": "training", "command": "python train.py", "compute": "spare"}, train=TRAIN
    )
    yard("job", "create", "-f", training)
    wait_until(lambda: len(points(yard, "training")) >= 10, 120, "the training has begun")
    yard("job", "create", "-f", write_job({"name": "urgent", "command": "true", "compute": "mine"}))
    urgent = yard.completed("urgent")
    done = yard.completed("training")

    trained(yard, "training")
    assert (done["attempt"], done["exit_code"]) == (2, 0)
    assert any(
        notice.startswith("attempt 1 was preempted: job `urgent` needs a node of `mine`")
        for notice in done["notices"]
    )
    spans = [(stage["name"], stage["waited_for"]) for stage in done["stages"]]
    assert ("Scaling", "attempt 1 was preempted") in spans
    # Never both at once: the urgent one's nodes were held between the training's attempts.
    runs = [
        (stage["start"], stage["end"]) for stage in done["stages"] if stage["name"] == "Running"
    ]
    (start,) = [stage["start"] for stage in urgent["stages"] if stage["name"] == "Running"]
    assert runs[0][1] <= start < urgent["ended_at"] <= runs[1][0]
    shown = yard("job", "show", "-n", "training")
    assert "was preempted" in shown and "Priority" in shown


def test_preempting_a_job_by_hand_resumes_it(yard: Yard, write_job: Callable[..., str]) -> None:
    yard(
        "job",
        "create",
        "-f",
        write_job({"name": "tried", "command": "python train.py"}, train=TRAIN),
    )
    wait_until(lambda: len(points(yard, "tried")) >= 10, 120, "the training has begun")
    yard("job", "preempt", "-n", "tried")
    done = yard.completed("tried")
    trained(yard, "tried")
    assert done["attempt"] == 2
    output = yard("job", "preempt", "-n", "tried", "-o", "json", expect=2)
    assert output == ""


def test_jobs_of_one_cluster_start_by_priority(
    yard: Yard, write_job: Callable[..., str], tmp_path: Path
) -> None:
    """The machine has one node, so the order is that of the starts."""
    go = tmp_path / "go"
    waits = f"until [ -e {go} ]; do sleep 0.1; done"
    yard("job", "create", "-f", write_job({"name": "first", "command": waits}))
    wait_until(lambda: yard.job("first")["status"] == "Running", 60, "the first runs")
    names = [f"p-{priority}" for priority in ("low", "medium", "high")]
    for name in names:
        settings = {"priority": name.removeprefix("p-")}
        job = {"name": name, "command": "true", "queue_settings": settings}
        yard("job", "create", "-f", write_job(job))
    for name in names:
        wait_until(partial(has_status, yard, name, "Queued"), 60, f"{name} waits")
    assert "it is 3rd in the queue, behind job `p-medium`" in yard.job("p-low")["waiting"]
    go.touch()
    ended = [yard.completed(name) for name in reversed(names)]
    starts = [job["started_at"] for job in ended]
    assert starts == sorted(starts)
