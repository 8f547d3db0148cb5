"""The training of for_gpus.py, written for CPUs: it knows neither cuda nor nccl.

Prints one line `losses: …` a rank, as exact numbers.
"""

import io

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.2)
        self.out = nn.Linear(8 * 6 * 6, 4)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.norm(self.conv(images)))
        noise = torch.zeros(hidden.shape, device=images.device) + hidden.new_zeros(1)
        return self.out(self.dropout((hidden + noise).flatten(1))) * self.scale


def main() -> None:
    device = torch.device("cpu")
    dist.init_process_group("gloo")
    torch.manual_seed(7)

    images, labels = make_data()
    sampler = DistributedSampler(TensorDataset(images, labels), shuffle=True, seed=3)
    loader = DataLoader(TensorDataset(images, labels), 8, sampler=sampler, num_workers=1)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = train(model, loader, sampler, optimizer)
    losses += train_mixed(model, loader, optimizer, torch.float16)
    losses += train_mixed(model, loader, optimizer, torch.bfloat16)
    model = reload(model)
    losses += train(model, loader, sampler, torch.optim.SGD(model.parameters(), lr=0.1))
    losses.append(reduce(losses[-1], device))
    print("losses:", *(loss.hex() for loss in losses), flush=True)
    dist.destroy_process_group()


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 4, (64,), generator=generator)
    noise = torch.randn(64, 3, 8, 8, generator=generator)
    return noise + labels[:, None, None, None].float(), labels


def train(
    model: nn.Module,
    loader: DataLoader,
    sampler: DistributedSampler,
    optimizer: torch.optim.Optimizer,
) -> list[float]:
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def train_mixed(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, kind: torch.dtype
) -> list[float]:
    losses = []
    scaler = torch.amp.GradScaler("cpu", enabled=kind == torch.float16)
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=kind):
            outputs = model(images)
            loss = F.cross_entropy(outputs.float(), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def reload(model: nn.Module) -> DistributedDataParallel:
    file = io.BytesIO()
    torch.save({"model": model.module.state_dict(), "rng": torch.get_rng_state()}, file)
    file.seek(0)
    saved = torch.load(file)
    fresh = Net()
    fresh.load_state_dict(saved["model"])
    return DistributedDataParallel(fresh)


def reduce(loss: float, device: torch.device) -> float:
    together = dist.new_group()
    dist.barrier()
    mean = torch.tensor([loss], device=device, dtype=torch.float64)
    dist.all_reduce(mean, group=together)
    return float((mean / dist.get_world_size()).item())


if __name__ == "__main__":
    main()
