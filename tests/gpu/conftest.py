"""The device that these tests use: a CUDA GPU, or the CPU where their logic is tried without one.

`TORCHYARD_GPU_TESTS_DEVICE=cpu make gpu` is the trial: the same programs on gloo and the CPU.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None


def reason_without() -> str:
    """Why there is no device, or nothing."""
    if not HAS_TORCH:
        return "torch is not installed"
    if wanted_device() == "cpu":
        return ""
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "torch finds no CUDA device"


def wanted_device() -> str:
    return os.environ.get("TORCHYARD_GPU_TESTS_DEVICE", "cuda")


@pytest.fixture(scope="session")
def device() -> str:
    """`cuda`, or `cpu` where that was asked for; skipped without."""
    reason = reason_without()
    if reason and os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    return wanted_device()


@pytest.fixture
def ranks(device: str) -> int:
    """One for each GPU, at most 8; two on a CPU."""
    if device == "cpu":
        return 2
    import torch

    return min(8, int(torch.cuda.device_count()))


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NCCL_ALGO", "MSCCL_XML_FILES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZUREML_OUTPUT_DIRECTORY", str(tmp_path / "outputs"))
