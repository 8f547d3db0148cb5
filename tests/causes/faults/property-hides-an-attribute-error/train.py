import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.project = nn.Linear(width, 2)

    @property
    def device(self):
        return self.projection.weight.device  # here

    def forward(self, rows):
        return self.project(self.layers(rows.to(self.device)))  # here


def main():
    model = Encoder(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(10):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
