import warnings

import torch
from torch.optim.lr_scheduler import LinearLR

# A NaN that only warned has cost us a week.
warnings.simplefilter("error")  # here


def epoch(model, optimizer, scheduler, batches):
    for step, batch in enumerate(batches):
        scheduler.step()  # here
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate = scheduler.get_last_lr()[0]
        print(f"step {step} loss {loss.item():.4f} lr {rate:.2e}", flush=True)


def main():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = LinearLR(optimizer, start_factor=0.1, total_iters=10)
    epoch(model, optimizer, scheduler, torch.randn(20, 8, 4))


if __name__ == "__main__":
    main()
