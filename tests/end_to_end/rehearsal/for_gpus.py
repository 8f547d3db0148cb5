"""A training that hard-codes cuda and nccl in every way people do; its twin is for_cpus.py.

Prints one line `losses: …` a rank, as exact numbers.
"""

import io
import os

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
        noise = torch.zeros(hidden.shape, device=images.device) + hidden.new_zeros(1, device="cuda")
        return self.out(self.dropout((hidden + noise).flatten(1))) * self.scale


def main() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert dist.is_nccl_available()
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = True
    dist.init_process_group("nccl", device_id=device)
    assert dist.get_backend() == "nccl"
    assert device.type == "cuda" and torch.cuda.current_device() == local_rank
    torch.manual_seed(7)
    torch.cuda.manual_seed_all(7)

    images, labels = make_data()
    sampler = DistributedSampler(TensorDataset(images, labels), shuffle=True, seed=3)
    loader = DataLoader(
        TensorDataset(images, labels), 8, sampler=sampler, num_workers=1, pin_memory=True
    )
    model = Net().cuda()
    model.to("cuda:0").to(device, non_blocking=True)
    model = DistributedDataParallel(model, device_ids=[local_rank], output_device=local_rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = train(model, loader, sampler, optimizer, device)
    losses += train_mixed(model, loader, optimizer, device, torch.float16)
    losses += train_mixed(model, loader, optimizer, device, torch.bfloat16)
    model = reload(model, device, local_rank)
    losses += train(model, loader, sampler, torch.optim.SGD(model.parameters(), lr=0.1), device)
    losses.append(reduce(losses[-1], device, local_rank))
    print("losses:", *(loss.hex() for loss in losses), flush=True)
    dist.destroy_process_group()


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device="cuda").manual_seed(1)
    labels = torch.randint(0, 4, (64,), generator=generator, device="cuda")
    noise = torch.randn(64, 3, 8, 8, generator=generator, device="cuda")
    return (noise + labels[:, None, None, None].float()).cpu(), labels.cpu()


def train(
    model: nn.Module,
    loader: DataLoader,
    sampler: DistributedSampler,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> list[float]:
    losses = []
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    copying = torch.cuda.Stream()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        start.record()
        for images, labels in loader:
            with torch.cuda.stream(copying):
                images = images.to(device, non_blocking=True)
                labels = labels.cuda(non_blocking=True)
            torch.cuda.current_stream().wait_stream(copying)
            images.record_stream(torch.cuda.current_stream())
            assert images.is_cuda and images.device == device and labels.device.type == "cuda"
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) > 0
    torch.cuda.empty_cache()
    return losses


def train_mixed(
    model: nn.Module,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    kind: torch.dtype,
) -> list[float]:
    losses = []
    scaler = torch.amp.GradScaler("cuda", enabled=kind == torch.float16)
    for images, labels in loader:
        images, labels = images.to("cuda:0"), labels.to(device=device)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=kind):
            assert torch.is_autocast_enabled()
            outputs = model(images)
            assert outputs.dtype == kind or outputs.dtype == torch.float32
            loss = F.cross_entropy(outputs.float(), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def reload(model: nn.Module, device: torch.device, local_rank: int) -> DistributedDataParallel:
    file = io.BytesIO()
    torch.save({"model": model.module.state_dict(), "rng": torch.cuda.get_rng_state()}, file)
    file.seek(0)
    saved = torch.load(file, map_location=f"cuda:{local_rank}")
    torch.cuda.set_rng_state(saved["rng"].cpu())
    with torch.device("cuda"):
        fresh = Net()
    fresh.load_state_dict(saved["model"])
    return DistributedDataParallel(fresh.to(device), device_ids=[local_rank])


def reduce(loss: float, device: torch.device, local_rank: int) -> float:
    together = dist.new_group(backend="nccl")
    dist.barrier(device_ids=[local_rank])
    mean = torch.tensor([loss], device=device, dtype=torch.float64)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=together)
    everyone = [torch.empty_like(mean, device="cuda") for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mean)
    assert len({value.item() for value in everyone}) == 1
    return float(mean.item())


if __name__ == "__main__":
    main()
