import torch
from torch.utils.checkpoint import checkpoint


class Tied(torch.nn.Module):
    """The same block at each depth, as in ALBERT; activations are computed again to save memory."""

    def __init__(self, width, depth):
        super().__init__()
        self.first = torch.nn.Linear(width, width)
        self.block = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU())
        self.depth = depth

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.depth):
            x = checkpoint(self.block, x, use_reentrant=True)
        return x
