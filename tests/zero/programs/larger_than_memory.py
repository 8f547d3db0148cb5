"""Train a model under a limit of this rank's memory: whole, or by ZeRO-3.

The limit is on what the process allocates (RLIMIT_DATA), from its start on: `limit_mb` more than
it had before the model.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path
from typing import Any

import cpu
import deepspeed
import torch
import torch.distributed as dist

WIDTH, LAYERS = 2048, 12
_M_MMAP_THRESHOLD = -3


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def allocated_mb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmData")


def limit(megabytes: int) -> None:
    # What is freed goes back at once: glibc would keep blocks of up to 32 MB for later.
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 2**20)
    limit_bytes = (allocated_mb() + megabytes) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def train_whole() -> list[float]:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    losses = []
    for _ in range(3):
        loss = model(torch.ones(4, WIDTH)).sub(1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sharded() -> list[float]:
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": 5_000_000,
            "overlap_comm": False,
            "stage3_prefetch_bucket_size": 0,
            "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0,
            "stage3_param_persistence_threshold": 0,
            "sub_group_size": 5_000_000,
        },
    }
    # Each layer is divided as soon as it is made: no rank ever holds the model.
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = network()
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.Adam(model.parameters(), 1e-4), config=config
    )
    losses = []
    for _ in range(3):
        loss = engine(torch.ones(4, WIDTH)).sub(1).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def main(how: str, megabytes: int) -> None:
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    before = allocated_mb()
    if megabytes:
        limit(megabytes)
    answer: dict[str, Any] = {"parameters_mb": LAYERS * WIDTH * (WIDTH + 1) * 4 / 2**20}
    try:
        answer["losses"] = train_whole() if how == "whole" else sharded()
    except (RuntimeError, MemoryError) as error:
        answer["error"] = str(error)
    answer["allocated_mb"] = allocated_mb() - before
    cpu.answer(answer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
