"""fairscale's names beside DDP: the original's, or torchyard's layer where PYTHONPATH has it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")
torch.set_num_threads(1)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def batches() -> Iterator[torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    for _ in range(10):
        yield torch.randn(8, 8, generator=made)[dist.get_rank() :: dist.get_world_size()]


def train(model: Any, optimizer: Any) -> list[float]:
    losses = []
    for x in batches():
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.detach().clone()
        dist.all_reduce(value)
        losses.append(value.item() / dist.get_world_size())
    return losses


def by_name(name: str) -> list[float]:
    from fairscale.nn import FullyShardedDataParallel, ShardedDataParallel, checkpoint_wrapper
    from fairscale.optim import OSS

    model: Any = network()
    if name == "fsdp":
        model = FullyShardedDataParallel(model)
        losses = train(model, torch.optim.Adam(model.parameters(), 0.01))
        assert list(model.state_dict()["0.weight"].shape) == [16, 8]
        return losses
    if name == "checkpoint":
        model[0] = checkpoint_wrapper(model[0])
        assert model.state_dict().keys() == network().state_dict().keys()
        model = DistributedDataParallel(model)
        return train(model, torch.optim.Adam(model.parameters(), 0.01))
    optimizer = OSS(model.parameters(), optim=torch.optim.Adam, lr=0.01)
    if name == "sdp":
        model = ShardedDataParallel(model, optimizer)
    else:
        model = DistributedDataParallel(model)
    losses = train(model, optimizer)
    optimizer.consolidate_state_dict(recipient_rank=0)
    if dist.get_rank() == 0:
        assert len(optimizer.state_dict()["state"]) == 4
    return losses


def main(names: list[str]) -> None:
    import json
    import os
    from pathlib import Path

    import fairscale

    dist.init_process_group("gloo")
    plain = DistributedDataParallel(network())
    expected = train(plain, torch.optim.Adam(plain.parameters(), 0.01))
    answers: dict[str, Any] = {"file": fairscale.__file__}
    for name in names:
        try:
            pairs = zip(by_name(name), expected, strict=True)
            answers[name] = max(abs(a - b) for a, b in pairs)
        except Exception as error:
            answers[name] = f"{type(error).__name__}: {error}"
    Path(os.environ["ANSWER"]).write_text(json.dumps(answers))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
