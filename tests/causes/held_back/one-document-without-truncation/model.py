import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.query, self.key = nn.Linear(1, width), nn.Linear(1, width)

    def forward(self, tokens):
        scores = self.query(tokens) @ self.key(tokens).transpose(-1, -2)  # here
        return torch.softmax(scores, -1) @ tokens
