"""Train a classifier of handwritten digits with DeepSpeed's ZeRO-3, as a script for it looks.

Nothing here is torchyard's: the ranks' variables are those that DeepSpeed reads.
"""

from __future__ import annotations

import argparse

import deepspeed
import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from sklearn.datasets import load_digits
from torch import nn


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                         nn.Linear(256, 10))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.init_distributed()
    model = network()
    engine, _, _, _ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters()
    )
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images / 16, dtype=torch.float32)
    targets = torch.tensor(labels)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    train, test = order[:1440], order[1440:]
    batch = engine.train_micro_batch_size_per_gpu()
    for epoch in range(args.epochs):
        shuffled = train[torch.randperm(1440, generator=torch.Generator().manual_seed(epoch))]
        for rows in shuffled[rank::ranks].split(batch):
            x, y = inputs[rows].to(engine.device), targets[rows].to(engine.device)
            loss = nn.functional.cross_entropy(engine(x), y)
            engine.backward(loss)
            engine.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)

    engine.save_checkpoint("outputs/checkpoints")
    torch.distributed.barrier()
    if rank == 0:
        # One file for plain torch, from the parts that the ranks saved.
        state = get_fp32_state_dict_from_zero_checkpoint("outputs/checkpoints")
        torch.save(state, "outputs/model.pt")
        plain = network()
        plain.load_state_dict(torch.load("outputs/model.pt", weights_only=True))
        with torch.no_grad():
            right = plain(inputs[test]).argmax(1).eq(targets[test]).float().mean()
        print(f"{ranks} ranks, ZeRO-{engine.zero_optimization_stage()}, "
              f"test accuracy {right.item():.4f}")  # fmt: skip
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
