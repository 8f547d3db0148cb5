import torch
from torch import nn


class Pooling(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, states):
        weights = self.score(states).softmax(dim=1)
        pooled = (weights * states).sum(dim=1)
        weights += 1e-3  # here
        return pooled, -(weights * weights.log()).sum()


def train(model, head, steps):
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
    for step in range(steps):
        pooled, entropy = model(torch.randn(4, 7, 16))
        loss = head(pooled).square().mean() + 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()  # here
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")


train(Pooling(16), nn.Linear(16, 3), steps=10)
