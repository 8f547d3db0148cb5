import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector

LONGEST = 48  # Stands for what fits into memory.


def loss_of(model, batch):
    if len(batch) > LONGEST:
        raise MemoryError(f"{len(batch)} rows")
    return model(batch).square().mean()


def update(model, optimizer, batch):
    optimizer.zero_grad()
    try:
        loss = loss_of(model, batch)
    except MemoryError:
        print(f"rank {dist.get_rank()}: batch of {len(batch)} is halved", flush=True)
        return sum(update(model, optimizer, half) for half in batch.chunk(2)) / 2  # here
    loss.backward()
    gradient = parameters_to_vector(p.grad for p in model.parameters())
    dist.all_reduce(gradient)  # here
    torch.nn.utils.vector_to_parameters(gradient, [p.grad for p in model.parameters()])
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        rows = 64 if dist.get_rank() == 1 and step == 5 else 16
        print(f"step {step} loss {update(model, optimizer, torch.randn(rows, 4)):.4f}", flush=True)
    dist.barrier()  # here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
