import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def update(optimizer, loss):
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    rows = torch.randn(32, 8)
    labels = (rows.sum(1) > 0).long()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for epoch in range(40):
        loss = update(optimizer, torch.nn.functional.cross_entropy(model(rows), labels))
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss:.5f}", flush=True)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
