"""Train under a limit of the device's memory: in one piece, or by ZeRO-3 with offload.

`how` is `whole` or `offloaded`; the limit is torch's own, on what this process allocates.
"""

from __future__ import annotations

import sys
from typing import Any

import rank as own
import torch

WIDTH, LAYERS, LIMIT_MB = 4096, 16, 2048


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def train_whole(device: torch.device) -> list[float]:
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    losses = []
    for _ in range(3):
        loss = model(torch.ones(4, WIDTH, device=device)).sub(1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def offloaded(device: torch.device) -> list[float]:
    import deepspeed

    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": 3,
            # By default it is as large as the limit.
            "reduce_bucket_size": 20_000_000,
            "stage3_prefetch_bucket_size": 20_000_000,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "offload_param": {"device": "cpu", "pin_memory": True},
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 50_000_000,
            "sub_group_size": 50_000_000,
        },
    }
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = network()
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.Adam(model.parameters(), 1e-4), config=config
    )
    losses = []
    for _ in range(3):
        loss = engine(torch.ones(4, WIDTH, device=device)).sub(1).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def main(how: str, is_limited: bool) -> None:
    device = own.begin()
    if is_limited:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(LIMIT_MB * 2**20 / total, device)
    result: dict[str, Any] = {"parameters_mb": LAYERS * WIDTH * (WIDTH + 1) * 4 / 2**20}
    try:
        result["losses"] = train_whole(device) if how == "whole" else offloaded(device)
    except torch.OutOfMemoryError as error:
        result["error"] = str(error)
    result["peak_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
    own.answer(result)


if __name__ == "__main__":
    main(sys.argv[1], "limited" in sys.argv[2:])
