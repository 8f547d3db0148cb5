"""The network and its images, which all steps share.

Shape suffixes: N images, C channels, H rows, W columns, K classes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

FILE = "digits.npz"


def make_network() -> nn.Module:
    """8x8 grey images to 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def save_images(folder: Path, images_NHW: np.ndarray, labels_N: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / FILE, images=images_NHW, labels=labels_N)


def load_images(folder: Path) -> tuple[Tensor, Tensor]:
    """Images (N, C, H, W) from 0 to 1, and their labels (N)."""
    arrays = np.load(folder / FILE)
    images_NCHW = torch.tensor(arrays["images"], dtype=torch.float32).unsqueeze(1) / 16.0
    return images_NCHW, torch.tensor(arrays["labels"], dtype=torch.int64)
