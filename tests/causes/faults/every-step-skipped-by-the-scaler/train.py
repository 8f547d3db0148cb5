import torch
from scaler import LossScaler


def distance(a, b, mask):
    # The gradient of the root is infinite at 0, and masked rows are all 0.
    root = (a - b).square().sum(1).mul(mask).sqrt()
    return torch.where(mask > 0, root, torch.zeros(())).mean()


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = LossScaler()
    for step in range(40):
        x, y = torch.randn(16, 8), torch.randn(16, 4)
        mask = (torch.arange(16) < 12).float()
        loss = distance(model(x), y, mask)
        scaler.step(loss, optimizer)
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
