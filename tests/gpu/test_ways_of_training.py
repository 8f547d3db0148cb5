"""A/B on the device: the same training in several ways, equal in losses, each with its speed.

What is asserted is that the results are the same; how fast each is on these GPUs is printed.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu import launching

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

_ROOT = Path(__file__).parents[2]
_MSCCL = "MSCCL,RING,TREE"


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def compare(way: str, device: str, tmp_path: Path, precision: str = "float32") -> dict[str, Any]:
    """BERT-large's and GPT-2's shapes on a GPU, tiny ones on a CPU."""
    size, steps = ("large", "20") if device == "cuda" else ("tiny", "3")
    file = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, str(_ROOT / "benchmarks/training_ways.py"), "--size", size,
         "--device", device, "--steps", steps, "--ways", "eager", way,
         "--precision", precision, "--json", str(file)],
        capture_output=True, text=True,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    models: dict[str, Any] = {}
    for result in json.loads(file.read_text()):
        assert result["failed"] == {}, result["failed"]
        models[result["model"]] = result["ways"]
    return models


@pytest.mark.parametrize("way", ["fused", "compile", "ortmodule", "deepspeed"])
def test_losses_are_those_of_plain_pytorch(way: str, device: str, tmp_path: Path) -> None:
    if way == "deepspeed":
        needs("deepspeed")
    if way == "ortmodule":
        needs("onnx", "onnxscript", "onnxruntime")
    for model, ways in compare(way, device, tmp_path).items():
        apart = ways[way]["largest_loss_difference"]
        assert apart < 2e-2, f"{model}: losses are {apart} apart"
        assert ways[way]["losses"][1] < 1.05 * ways[way]["losses"][0]


def test_half_precision_trains_as_well(device: str, tmp_path: Path) -> None:
    for ways in compare("fused", device, tmp_path, "bfloat16").values():
        assert ways["fused"]["largest_loss_difference"] < 5e-2


def test_a_model_larger_than_the_devices_memory_trains_with_offload(device: str) -> None:
    """1 GB of parameters, with gradients and Adam's state 4: the device may hold 2."""
    if device == "cpu":
        pytest.skip("the CPU has no memory of its own: tests/zero does it with a limit of the rank")
    needs("deepspeed")
    (failed,) = launching.run("larger_than_device.py", 1, device, "whole", "limited")
    assert "out of memory" in failed["error"], failed
    (expected,) = launching.run("larger_than_device.py", 1, device, "whole")
    (offloaded,) = launching.run("larger_than_device.py", 1, device, "offloaded", "limited")
    assert "error" not in offloaded, offloaded
    assert offloaded["losses"] == pytest.approx(expected["losses"], rel=1e-2)
    print(f"{failed['parameters_mb']:.0f} MB of parameters, peak {offloaded['peak_mb']:.0f} MB")


def test_all_reduce_by_msccls_settings_and_without(device: str, ranks: int) -> None:
    """What they cost or gain on these GPUs; that NCCL starts with them at all."""
    largest = 256 * 2**20 if device == "cuda" else 64 * 1024
    arguments = ("all_reduce_sweep.py", ranks, device, str(largest))
    plain = launching.run(*arguments)
    translated = launching.run(*arguments, "msccl", NCCL_ALGO=_MSCCL)
    pinned = launching.run(*arguments, NCCL_ALGO="Ring")
    assert {answer["algorithms"] for answer in translated} == {None}
    print(f"all_reduce on {ranks} ranks, µs: plain, by `{_MSCCL}`, by `Ring`")
    for size, seconds in plain[0]["seconds"].items():
        others = [answers[0]["seconds"][size] for answers in (translated, pinned)]
        ratios = " ".join(f"{other * 1e6:9.0f} ({other / seconds:.2f}x)" for other in others)
        print(f"{size:>10} B {seconds * 1e6:9.0f} {ratios}")
        assert all(other > 0 for other in others)
