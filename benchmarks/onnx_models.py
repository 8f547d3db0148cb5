"""A model by PyTorch, by torch.compile and by ONNX Runtime, on the CPU.

    python benchmarks/onnx_models.py [--calls 50] [--threads 2] [--write FOLDER]

Needs torch, onnx, onnxscript and onnxruntime beside torchyard; for torch.compile a C++ compiler.
ResNet-18 is written out here, so that torchvision is not needed. The three take turns, call by
call, so that other load on the machine strikes all of them. `--write` exports
ResNet-18 as model.onnx and measures nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchyard.train import onnx
from torchyard.train.onnx.parity import OnnxSession


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or width_in != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def resnet18() -> nn.Module:
    """Source: https://arxiv.org/abs/1512.03385, table 1."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    width_in = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(width_in, width, stride), Block(width, width, 1)]
        width_in = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Attention(nn.Module):
    """One layer of a transformer, normalized first, with 12 heads."""

    def __init__(self, width: int, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def transformer() -> nn.Module:
    """The size of MiniLM-L6: 6 layers of width 384."""
    return nn.Sequential(nn.Embedding(30_522, 384), *[Attention(384) for _ in range(6)])


def measure(name: str, module: nn.Module, example: torch.Tensor, calls: int, threads: int) -> None:
    """Print the median of each in milliseconds, and its ratio to PyTorch's."""
    module.eval()
    with tempfile.TemporaryDirectory() as folder:
        report = onnx.export(module, example, folder, say=lambda line: None)
        session = OnnxSession(report.file)
        compiled = torch.compile(module)
        runs: dict[str, Callable[[], Any]] = {
            "eager": lambda: module(example),
            "torch.compile": lambda: compiled(example),
            "ONNX Runtime": lambda: session({report.inputs[0]: example}),
        }
        times: dict[str, list[float]] = {key: [] for key in runs}
        with torch.inference_mode():
            for key, run in list(runs.items()):
                try:
                    run()
                except Exception as error:
                    print(f"{name}: {key} does not run here: {str(error).splitlines()[0]}")
                    del runs[key]
            for _ in range(calls):
                for key, run in runs.items():
                    before = time.perf_counter()
                    run()
                    times[key].append((time.perf_counter() - before) * 1000)
    eager = statistics.median(times["eager"])
    for key in runs:
        median = statistics.median(times[key])
        print(f"{name}: {key:14} {median:8.2f} ms  {eager / median:5.2f} times eager")
    print(f"{name}: largest difference {report.max_difference:.1e}; {threads} threads, batch 1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", metavar="FOLDER")
    options = parser.parse_args()
    if options.write:
        onnx.export(resnet18().eval(), torch.randn(1, 3, 224, 224), options.write)
        return
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    picture, tokens = torch.randn(1, 3, 224, 224), torch.randint(0, 30_522, (1, 64))
    measure("ResNet-18", resnet18(), picture, options.calls, options.threads)
    measure("transformer", transformer(), tokens, options.calls, options.threads)


if __name__ == "__main__":
    main()
