"""What ranks do in tests; each answers with something that JSON holds."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import signal
import sys
import types
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from torchyard.train import stopping
from torchyard.train.checkpoint import Checkpointer, CheckpointError


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))


def wrapped(kind: str) -> nn.Module:
    model = network()
    if kind == "ddp" and dist.is_initialized():
        return DistributedDataParallel(model)
    if kind == "fsdp2" and dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if kind == "tensor-parallel" and dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        output = model(torch.randn(4, 16))
        output.square().mean().backward()
        optimizer.step()


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Of the whole weights and optimizer state, the same however they are sharded."""
    content = hashlib.sha256()
    for parameter in model.parameters():
        for tensor in (parameter, *_tensors(optimizer.state[parameter])):
            tensor = tensor.detach()
            full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            content.update(full.numpy().tobytes())
    return content.hexdigest()


def _tensors(state: dict[str, Any]) -> list[torch.Tensor]:
    return [state[name] for name in ("exp_avg", "exp_avg_sq", "step")]


def save(kind: str, folder: str) -> str:
    """Train three steps, save, and answer with what was saved."""
    model = wrapped(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    checkpointer = Checkpointer(folder)
    for step in (1, 2, 3):
        train(model, optimizer, step)
        state = {"model": model, "optimizer": optimizer, "epoch": step}
        pending = checkpointer.save(step, state)
    saved = digest(model, optimizer)
    # What changes after `save` has returned is not in the checkpoint.
    train(model, optimizer, 1)
    pending.wait(60)
    return saved


def load(kind: str, folder: str) -> tuple[str, int]:
    torch.manual_seed(99)
    model = wrapped(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    state = {"model": model, "optimizer": optimizer, "epoch": 0}
    loaded = Checkpointer(folder).load(state)
    assert loaded is not None
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert (loaded[0], loaded[1]["epoch"]) == (3, 3)
    return digest(model, optimizer), loaded[0]


def one_saves_alone(folder: str) -> str:
    """Both save step 1; rank 1 leaves out step 2; both save step 3."""
    checkpointer = Checkpointer(folder, timeout_s=15)
    state = {"weight": torch.ones(3)}
    checkpointer.save(1, state).wait(60)
    answer = ""
    if dist.get_rank() == 0:
        try:
            checkpointer.save(2, state).wait(60)
        except CheckpointError as error:
            answer = error.message
    dist.barrier()
    checkpointer.save(3, state).wait(60)
    return answer


def killed_while_saving(folder: str, notes: str, timeout_s: float) -> None:
    """Resume from the newest checkpoint, check it, and save one step after the other until killed.

    `notes` gets what was resumed, the writer's pid, and the newest step that is durable. The
    writers wait for each other for `timeout_s` once both have started.
    """
    rank = dist.get_rank()
    checkpointer = Checkpointer(folder, keep_last=3, timeout_s=100)
    loaded = checkpointer.load()
    step = 0
    if loaded is not None:
        step = loaded[0]
        check_content(step, loaded[1])
    _note(notes, f"resumed-{rank}", step)
    while True:
        step += 1
        pending = checkpointer.save(step, content(step))
        _note(notes, f"writer-{rank}", checkpointer._writer.pid or 0)
        pending.wait(120)
        _note(notes, f"durable-{rank}", step)
        checkpointer._timeout_s = timeout_s


def content(step: int) -> dict[str, Any]:
    """A few megabytes that only this step has."""
    large = {f"layer{number}": torch.full((300, 500), float(step + number)) for number in range(8)}
    return {"weights": large, "step": step}


def check_content(step: int, state: dict[str, Any]) -> None:
    expected = content(step)
    assert state["step"] == step
    assert set(state["weights"]) == set(expected["weights"])
    for name, tensor in expected["weights"].items():
        assert torch.equal(state["weights"][name], tensor), (step, name)


def _note(folder: str, name: str, value: int) -> None:
    part = Path(folder, f"{name}.part")
    part.write_text(str(value))
    part.rename(Path(folder, name))


def told_to_stop(step_of_rank_1: int) -> list[int]:
    """The step at which every rank stops when rank 1 is told at one; again in a new group that has
    no gloo of its own for tensors on the CPU.
    """
    stops = []
    for has_gloo in (True, False):
        if not has_gloo:
            stopping._requested.clear()
            stopping._group = None
            dist.get_backend_config = lambda: "cuda:nccl"
        for step in range(10):
            if dist.get_rank() == 1 and step == step_of_rank_1:
                os.kill(os.getpid(), signal.SIGTERM)
            if stopping.should_stop():
                stops.append(step)
                break
    assert stopping._group is not None and stopping._group[1] is not None
    return stops


def _apart(folder: str, name: str) -> None:
    """As on two machines: ranks 0 and 1 on the first, rank 2 on the other one."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    machine = Path(folder, f"machine-{rank // 2}")
    os.environ["AZUREML_OUTPUT_DIRECTORY"] = str(machine)
    port = Path(folder, f"port-{name}")
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ranks, True, wait_for_workers=False)
        port.write_text(str(store.port))
    dist.barrier()
    if rank > 0:
        store = dist.TCPStore("127.0.0.1", int(port.read_text()), ranks, False)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)


def save_apart(folder: str) -> dict[str, Any]:
    _apart(folder, "save")
    checkpointer = Checkpointer(timeout_s=60)
    for step, value in ((4, 0.5), (5, 1.5)):
        # What several ranks have, and something of each rank's own.
        state = {name: torch.full((1000,), value) for name in "abc"}
        state[f"own_{dist.get_rank()}"] = torch.full((1000,), value)
        checkpointer.save(step, state).wait(120)
    group = checkpointer._meet()
    try:
        checkpointer.load()
    except CheckpointError as error:
        same_run = error.hint
    dist.barrier()
    checkpointer.close()
    return {"leader": group.leader, "leaders": group.leaders, "same_run": same_run}


def load_apart(folder: str) -> tuple[int, float]:
    _apart(folder, "load")
    loaded = Checkpointer(timeout_s=60).load()
    assert loaded is not None
    step, state = loaded
    values = {float(tensor.mean()) for tensor in state.values()}
    assert len(values) == 1 and len(state) == 6
    dist.barrier()
    return step, values.pop()


def run_script(script: str, folder: str, *arguments: str) -> None:
    """Run a script as the worker does, in `folder`; its metrics go to `metrics.jsonl` there."""
    # The ranks have a group already, made by a file: free ports are soon those of others.
    dist.init_process_group = lambda backend: None
    os.chdir(folder)
    file = os.open("metrics.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def log_metrics(metrics: dict[str, float], step: int) -> None:
        os.write(file, json.dumps([step, metrics]).encode() + b"\n")

    mlflow = types.ModuleType("mlflow")
    mlflow.log_metrics = log_metrics  # type: ignore[attr-defined]
    sys.modules["mlflow"] = mlflow
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
