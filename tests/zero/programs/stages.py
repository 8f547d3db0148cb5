"""Train by DDP and by each kind of ZeRO that is named; compare losses, save, convert, load.

A kind is a stage and letters: `o` offloads the optimizer to memory, `p` the parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cpu
import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 10, 8


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def batches() -> Iterator[torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        yield torch.randn(BATCH, 8, generator=made)[dist.get_rank() :: dist.get_world_size()]


def loss_of(model: Any, x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    return loss


def mean(loss: torch.Tensor) -> float:
    value = loss.detach().float().clone()
    dist.all_reduce(value)
    return float(value.item() / dist.get_world_size())


def by_ddp() -> tuple[list[float], torch.nn.Module]:
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    losses = []
    for x in batches():
        loss = loss_of(model, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    return losses, model.module


def by_zero(kind: str) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": int(kind[0])}
    if "o" in kind:
        zero["offload_optimizer"] = {"device": "cpu"}
    if "p" in kind:
        zero["offload_param"] = {"device": "cpu"}
    if kind[0] == "3":
        # Else parameters as small as these stay whole on each rank.
        zero["stage3_param_persistence_threshold"] = 0
    model = network()
    engine, optimizer, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), 0.01),
        config={
            "train_batch_size": BATCH,
            # DeepSpeed's default is 1.0: it clips, and DDP does not.
            "gradient_clipping": 0.0,
            "zero_optimization": zero,
            # Its own Adam for the CPU would be compiled first.
            "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True,
        },
    )
    losses = []
    for x in batches():
        loss = loss_of(engine, x)
        engine.backward(loss)
        engine.step()
        losses.append(mean(loss))
    shapes = [list(weight.shape) for weight in model.parameters()]
    engine.save_checkpoint(f"saved-{kind}")
    dist.barrier()
    return {"losses": losses, "optimizer": type(optimizer).__name__, "held": shapes}


def main(kinds: list[str]) -> None:
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    expected, module = by_ddp()
    answers: dict[str, Any] = {"ddp": expected}
    for kind in kinds:
        answers[kind] = by_zero(kind)
        if dist.get_rank() == 0 and kind[0] != "0":
            state = get_fp32_state_dict_from_zero_checkpoint(f"saved-{kind}")
            Path("plain").mkdir(exist_ok=True)
            torch.save(state, f"plain/{kind}.pt")
            loaded = network()
            loaded.load_state_dict(torch.load(f"plain/{kind}.pt", weights_only=True))
            pairs = zip(loaded.parameters(), module.parameters(), strict=True)
            answers[kind]["apart"] = max((a - b).abs().max().item() for a, b in pairs)
        dist.barrier()
    cpu.answer(answers)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
