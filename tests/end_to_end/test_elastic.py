"""A training goes from 2 nodes to 1 and to 2 again in one run, its metrics in one series."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from end_to_end.shared_torch import RESUMABLE, SharedTorch
from end_to_end.yard_under_test import Yard, running_yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(1800)]

NODES, STEPS = 2, 120
# Attempts before the third are slow, so that they never end by themselves.
PLAIN = """
import json, os, signal, sys, time, urllib.request
from pathlib import Path

STEPS = 120
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ["TORCHYARD_ATTEMPT_NUMBER"])
checkpoint = Path("outputs/checkpoint.json")
state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "saved_at": 0}
began_at = int(time.time() * 1000)
print(f"attempt {attempt} has {ranks} ranks and begins at step {state['step']}", flush=True)


def send(path, body):
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/" + path,
        json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], **body}).encode(),
        {"Content-Type": "application/json",
         "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
    )
    urllib.request.urlopen(request, timeout=60).read()


if rank == 0 and state["step"]:
    note = {"step": state["step"], "saved_at": state["saved_at"], "began_at": began_at}
    send("set-tag", {"key": "torchyard.resumed_from", "value": json.dumps(note)})
for step in range(state["step"], STEPS):
    time.sleep(1 if attempt < 3 else 0.02)
    if rank == 0:
        now = int(time.time() * 1000)
        send("log-metric", {"key": "loss", "value": 0.9 ** step, "timestamp": now, "step": step})
        if step % 3 == 2 or told:
            part = checkpoint.with_suffix(".part")
            part.write_text(json.dumps({"step": step + 1, "saved_at": int(time.time() * 1000)}))
            part.replace(checkpoint)
    if told:
        sys.exit(143)
"""
TORCH = """
import os, time
import mlflow, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torchyard.train import Batches, Loop

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["TORCHYARD_ATTEMPT_NUMBER"])
torch.manual_seed(0)
inputs = torch.randn(240, 8)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
loader = DataLoader(data, batch_sampler=Batches(data, total=8))
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
loop = Loop({"model": model, "optimizer": optimizer}, save_every=3, keep_last=2)
for epoch in loop.epochs(4):
    for x, y in loop.batches(loader):
        assert len(x) == 8 // dist.get_world_size()
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            mlflow.log_metric("loss", loss.item(), step=loop.step)
        if attempt < 3:
            time.sleep(1)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def yard(new_url: Callable[[], str]) -> Iterator[Yard]:
    with running_yard("elastic", new_url()) as yard:
        yard("compute", "create", "-n", "two", "--max-instances", str(NODES))
        yield yard


def elastic(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "command": "python train.py",
        "compute": "two",
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "torchyard": {"min_nodes": 1, "max_nodes": NODES, "grow_after": "5s"},
        **changes,
    }


def steps(yard: Yard, name: str) -> list[int]:
    points = yard.get(f"jobs/{name}/metrics/history?key=loss")["points"]
    return sorted(step for step, _, _ in points)


def has_begun(yard: Yard, name: str, timeout_s: float) -> None:
    wait_until(
        lambda: "loss" in yard.job(name)["metrics"] and len(steps(yard, name)) >= 5,
        timeout_s,
        f"job {name} trains on {NODES} nodes",
    )


def went_to_one_node_and_back(yard: Yard, name: str, timeout_s: float) -> None:
    done = yard.completed(name, timeout_s)
    assert [attempt["node_count"] for attempt in done["attempts"]] == [2, 1, 2]
    codes = [(attempt["error"] or {}).get("code") for attempt in done["attempts"]]
    assert codes == ["worker_lost", "resized", None]
    assert steps(yard, name) == list(range(STEPS))
    assert "goes on with 1 node: node 1 was lost" in done["notices"]
    assert "goes on with 2 nodes: a node of `two` is free" in done["notices"]
    assert (done["attempt"], done["exit_code"], done["error"]) == (3, 0, None)


def test_a_job_shrinks_and_grows_while_the_server_is_killed(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    yard("job", "create", "-f", write_job(elastic("plain"), train=PLAIN))
    has_begun(yard, "plain", 120)
    os.kill(yard.worker_of("plain", 1)["pid"], signal.SIGKILL)
    yard.kill_server()
    yard("server", "start")
    went_to_one_node_and_back(yard, "plain", 600)
    first, *_ = yard.logs("plain").values()
    assert first.decode().startswith("attempt 3 has 2 ranks and begins at step")


def test_a_job_is_canceled_while_it_shrinks(yard: Yard, write_job: Callable[..., str]) -> None:
    yard("job", "create", "-f", write_job(elastic("canceled"), train=PLAIN))
    has_begun(yard, "canceled", 120)
    os.kill(yard.worker_of("canceled", 1)["pid"], signal.SIGKILL)
    wait_until(
        lambda: (
            yard.job("canceled")["attempt"] == 2
            or any("attempt 1 ended" in notice for notice in yard.job("canceled")["notices"])
        ),
        240,
        "its node was lost",
    )
    yard("job", "cancel", "-n", "canceled")
    assert yard.wait("canceled")["status"] == "Canceled"
    idle = yard.get("jobs?limit=10")["value"]
    assert {job["status"] for job in idle} <= {"Completed", "Canceled"}


def test_a_job_gives_a_node_to_one_that_waits(yard: Yard, write_job: Callable[..., str]) -> None:
    yard("job", "create", "-f", write_job(elastic("gives"), train=PLAIN))
    has_begun(yard, "gives", 120)
    short = {"name": "waits", "command": "sleep 1", "compute": "two", "code": None}
    yard("job", "create", "-f", write_job(short))
    assert yard.completed("waits", 300)["attempt"] == 1
    done = yard.completed("gives", 600)
    assert [attempt["node_count"] for attempt in done["attempts"]] == [2, 1, 2]
    assert "goes on with 1 node: job `waits` needs a node of `two`" in done["notices"]
    assert steps(yard, "gives") == list(range(STEPS))


@pytest.mark.slow
def test_a_distributed_training_goes_on_with_the_nodes_that_are_there(
    yard: Yard, write_job: Callable[..., str], shared_torch: SharedTorch
) -> None:
    job = elastic("ddp", environment=shared_torch.lend(yard.home, RESUMABLE))
    yard("job", "create", "-f", write_job(job, train=TORCH))
    has_begun(yard, "ddp", 800)
    os.kill(yard.worker_of("ddp", 1)["pid"], signal.SIGKILL)
    went_to_one_node_and_back(yard, "ddp", 600)
