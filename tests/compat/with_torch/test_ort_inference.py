"""ORTModule in eval mode by ONNX Runtime, where the environment has it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from compat.with_torch.test_ort_module import Block, train, wrapped

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def shown_notices() -> Iterator[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(w.message) for w in caught if str(w.message).startswith("torch_ort:")]


def sessions(model: Any) -> list[Any]:
    """Those that answer now."""
    runner = model.__dict__["_inference"]
    return [session for session in runner._by_inputs.values() if session is not None]


def test_it_answers_as_torch_does_for_any_size_and_new_weights(
    shown_notices: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_ort import DebugOptions, ORTModule

    monkeypatch.setenv("ORTMODULE_SAVE_ONNX_PATH", str(tmp_path))
    module = Block().eval()
    options = DebugOptions(inference="onnxruntime", save_onnx=True, onnx_prefix="block")
    model = ORTModule(module, options)
    mask = torch.ones(3, 5)
    with torch.inference_mode():
        for rows in (3, 7):
            x, mask = torch.randn(rows, 5, 16), torch.ones(rows, 5)
            for _ in range(3):
                result = model(x, scale=2.0, mask=mask)
                torch.testing.assert_close(result, module(x, mask, scale=2.0))
        assert len(sessions(model)) == 2 and len(set(sessions(model))) == 1
    assert (tmp_path / "block_inference.onnx").stat().st_size > 1000
    with torch.no_grad():
        module.inner.weight.mul_(1.5)
        for _ in range(3):
            torch.testing.assert_close(model(x, mask), module(x, mask), rtol=1e-4, atol=1e-5)
        # As optimizers and averages of weights write them, which torch does not count.
        for weight in module.parameters():
            weight.data.mul_(0.9)
        for _ in range(3):
            torch.testing.assert_close(model(x, mask), module(x, mask), rtol=1e-4, atol=1e-5)
        assert len(sessions(model)) == 1
    assert any("is answered by ONNX Runtime" in notice for notice in shown_notices())


def test_it_is_not_asked_with_gradients_or_in_training(shown_notices: Any) -> None:
    model = wrapped(Block(), inference="onnxruntime")
    assert len(train(model)) == 5
    model.eval()
    for _ in range(3):
        assert model(torch.randn(2, 16))["logits"].requires_grad
    assert sessions(model) == [] and shown_notices() == []


class Branches(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """What no graph can hold: a branch by values."""

    def forward(self, x: torch.Tensor) -> Any:
        return x * 2 if x.sum() > 0 else x - 1


def test_what_cant_be_exported_is_answered_by_torch(shown_notices: Any) -> None:
    model = wrapped(Branches().eval(), inference="onnxruntime")
    with torch.no_grad():
        for value in (1.0, -1.0, 1.0, -1.0):
            x = torch.full((2, 2), value)
            assert torch.equal(model(x), model.module(x))
    (notice,) = shown_notices()
    assert "Branches is answered by torch for these inputs" in notice
