"""A distributed training that loses a rank goes on by itself, and ends as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = """
import hashlib, os, signal, sys
import mlflow, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchyard.train import Loop

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
inputs = torch.randn(240, 8)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
loader = DataLoader(data, 4, sampler=DistributedSampler(data, seed=1))
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
loop = Loop({"model": model, "optimizer": optimizer}, save_every=20, keep_last=2)
print("resumed from", loop.resumed_from, flush=True)
dies = sys.argv[1] == "dies" and os.environ["TORCHYARD_ATTEMPT_NUMBER"] == "1"
for epoch in loop.epochs(2):
    for x, y in loop.batches(loader):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            mlflow.log_metric("loss", loss.item(), step=loop.step)
        if dies and loop.step == 47:
            loop.checkpointer.wait()
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
weights = torch.cat([parameter.flatten() for parameter in model.parameters()])
print("weights", hashlib.sha256(weights.detach().numpy().tobytes()).hexdigest(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.smoke
def test_a_lost_rank_costs_some_steps_and_no_point(
    yard: Yard, write_job: Callable[..., str], resumable_environment: dict[str, str]
) -> None:
    job = {
        "environment": resumable_environment,
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "resources": {"instance_count": 2},
        "torchyard": {"retry": {"max_attempts": 2, "backoff_s": 0}},
    }
    for name, how in (("stays", "lives"), ("loses", "dies")):
        command = f"python train.py {how}"
        yard("job", "create", "-f", write_job({**job, "name": name, "command": command},
                                              train=SCRIPT))  # fmt: skip
    results = {}
    for name in ("stays", "loses"):
        done = yard.completed(name, timeout_s=600)
        log = yard.read(f"jobs/{name}/files/user_logs/std_log_process_0.txt").decode()
        points = yard.get(f"jobs/{name}/metrics/history?key=loss")["points"]
        steps = sorted((step, value) for step, _, value in points)
        results[name] = (log.split("weights ")[1].split()[0], steps)
    assert "resumed from 40" in log
    assert any("it goes on from step 40" in notice for notice in done["notices"]), done["notices"]
    assert [step for step, _ in results["loses"][1]] == list(range(60))
    assert results["loses"] == results["stays"]
