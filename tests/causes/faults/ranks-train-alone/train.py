import os

import torch

rank = int(os.environ["RANK"])
torch.manual_seed(rank)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(30):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 8)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
if rank == 0:
    torch.save(model.state_dict(), "model.pt")
