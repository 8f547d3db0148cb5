"""Shuffle scikit-learn's handwritten digits and split them."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from network import save_images
from sklearn.datasets import load_digits

SEED = 7


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--test-images", type=int, default=360)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    arguments = parser.parse_args()

    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    parts = {
        arguments.test: order[: arguments.test_images],
        arguments.train: order[arguments.test_images :],
    }
    for folder, chosen in parts.items():
        save_images(folder, digits.images[chosen], digits.target[chosen])
        print(f"{len(chosen)} images in {folder.name}", flush=True)


if __name__ == "__main__":
    main()
