"""The layers as a script imports them; without torch, nothing here can be collected."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_COMPAT = Path(__file__).parents[3] / "compat"
_HAS_TORCH = importlib.util.find_spec("torch") is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    is_module = collection_path.suffix == ".py" and collection_path.name != "conftest.py"
    return True if is_module and not _HAS_TORCH else None


@pytest.fixture(autouse=True)
def _layers(monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in ("torch-ort", "ort-moe"):
        monkeypatch.syspath_prepend(str(_COMPAT / layer / "src"))
    for name in ("RANK", "WORLD_SIZE", "TORCH_ORT_TRAINING", "TORCH_ORT_INFERENCE"):
        monkeypatch.delenv(name, raising=False)
