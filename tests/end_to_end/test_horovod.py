"""A script written for Horovod, and its twin for DistributedDataParallel: the same losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import REPOSITORY, Yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

COMMON = """
import torch

def network():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))

def batches(rank, size):
    made = torch.Generator().manual_seed(7)
    x = torch.randn(20, 8, 16, generator=made)
    y = torch.randint(0, 4, (20, 8), generator=made)
    return [(x[step, rank::size], y[step, rank::size]) for step in range(20)]
"""

HOROVOD = """
import json, torch
import horovod.torch as hvd
from common import batches, network

hvd.init()
torch.manual_seed(hvd.rank())  # every rank begins elsewhere: the broadcast makes them one
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size(), momentum=0.9)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), op=hvd.Average)
assert isinstance(optimizer, torch.optim.SGD)
losses = []
for x, y in batches(hvd.rank(), hvd.size()):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with optimizer.skip_synchronize():
        optimizer.step()
    losses.append(hvd.allreduce(loss.detach(), name="loss").item())

ranks, here = hvd.size(), hvd.rank()
assert (ranks, hvd.local_size(), hvd.cross_size()) == (2, 2, 1)
tensor = torch.arange(3.0) + here
assert hvd.allreduce(tensor, average=False).tolist() == [1.0, 3.0, 5.0]
assert tensor.tolist() == [here, 1.0 + here, 2.0 + here]
assert hvd.allgather(torch.full((here + 1, 2), here)).tolist() == [[0, 0], [1, 1], [1, 1]]
assert hvd.broadcast(tensor, 1).tolist() == [1.0, 2.0, 3.0]
assert hvd.broadcast_object({"from": here}, 0) == {"from": 0}
assert hvd.allgather_object({"from": here}) == [{"from": 0}, {"from": 1}]
received, counts = hvd.alltoall(torch.arange(3) + 10 * here, splits=[1, 2])
assert received.tolist() == [[0, 10], [1, 2, 11, 12]][here], received
assert hvd.allreduce(torch.tensor([1 + here]), op=hvd.Max).tolist() == [2]
small = hvd.allreduce(torch.ones(2), compression=hvd.Compression.fp16)
assert small.dtype == torch.float32
weight = torch.ones(1, requires_grad=True)
hvd.allreduce(weight * (here + 1), op=hvd.Sum).backward()
assert weight.grad.item() == 2 * (here + 1), weight.grad
try:
    hvd.allreduce(tensor, op=hvd.Adasum)
    raise SystemExit("Adasum was taken")
except NotImplementedError as error:
    assert "Adasum" in str(error)
if here == 0:
    json.dump(losses, open("outputs/losses.json", "w"))
hvd.shutdown()
"""

DDP = """
import json, os, torch
import torch.distributed as dist
from common import batches, network

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * size, momentum=0.9)
losses = []
for x, y in batches(rank, size):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    losses.append(mean.item() / size)
if rank == 0:
    json.dump(losses, open("outputs/losses.json", "w"))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    lines = (REPOSITORY / "examples/digits/requirements.txt").read_text().splitlines()
    return {"pip_requirements": [*lines, "horovod==0.28.1"]}


def test_horovods_losses_are_those_of_ddp(
    yard: Yard, write_job: Callable[..., str], environment: dict[str, Any], tmp_path: Path
) -> None:
    losses = {}
    for name, script in (("horovod", HOROVOD), ("ddp", DDP)):
        job = {
            "name": f"losses-{name}",
            "command": "python train.py",
            "environment": environment,
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        }
        yard("job", "create", "-f", write_job(job, train=script, common=COMMON))
        done = yard.completed(f"losses-{name}")
        assert any("torchyard's layer" in notice for notice in done["notices"])
        losses[name] = json.loads(yard.read(f"jobs/losses-{name}/files/outputs/losses.json"))
    assert losses["horovod"] == pytest.approx(losses["ddp"], rel=1e-5)
