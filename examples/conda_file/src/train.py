"""Tell bright pictures from dark ones: a few steps with torch, torchvision and Pillow."""

from __future__ import annotations

import torch
from PIL import Image
from torchvision.transforms.functional import to_tensor

torch.manual_seed(0)
levels = torch.randint(0, 256, (64,)).tolist()
pictures = torch.stack([to_tensor(Image.new("L", (8, 8), level)) for level in levels])
labels = torch.tensor([float(level > 127) for level in levels])

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1), torch.nn.Flatten(0))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _step in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(pictures), labels)
    loss.backward()
    optimizer.step()

accuracy = ((model(pictures) > 0) == (labels > 0)).float().mean().item()
print(f"torch {torch.__version__}: loss {loss.item():.3f}, accuracy {accuracy:.4f}")
