"""What needs torch is skipped without it; where services are required, it fails."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without torch, modules that import it can't be collected; `test_torch_is_here` says so."""
    if importlib.util.find_spec("torch") is not None:
        return None
    if collection_path.suffix == ".py" and collection_path.name not in _WITHOUT_TORCH:
        return True
    return None


_WITHOUT_TORCH = (
    "conftest.py",
    "fake_torch.py",
    "test_interception.py",
    "test_run.py",
    "test_torch_is_here.py",
    "test_train_wheel.py",
)


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the variables of a job that runs it."""
    for name in ("RANK", "LOCAL_RANK", "TORCHYARD_RANK", "WORLD_SIZE", "AZUREML_OUTPUT_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
