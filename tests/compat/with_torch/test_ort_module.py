"""ORTModule: seen through, and run another way only where that is proven."""

from __future__ import annotations

import copy
import io
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

Compile = Callable[..., Any]


class Block(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """Takes tensors by place and by name, answers with a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(16, 32)
        self.drop = torch.nn.Dropout(0.1)
        self.outer = torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor, mask: Any = None, *, scale: float = 1.0) -> Any:
        hidden = self.drop(torch.tanh(self.inner(x)))
        if mask is not None:
            hidden = hidden * mask[..., None]
        return {"logits": self.outer(hidden) * scale, "hidden": (hidden,)}


def wrapped(module: torch.nn.Module, **choices: str) -> Any:
    from torch_ort import DebugOptions, ORTModule

    return ORTModule(module, DebugOptions(**choices))  # type: ignore[arg-type,unused-ignore]


def train(model: Any, steps: int = 5) -> list[float]:
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(8, 16))["logits"].pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def shown_notices() -> Any:
    """The notices so far."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(w.message) for w in caught if str(w.message).startswith("torch_ort:")]


def quick_compile(monkeypatch: pytest.MonkeyPatch, change: Compile = lambda run: run) -> None:
    """torch.compile without its code generator, which takes seconds and a C++ compiler."""
    real = torch.compile

    def compile(module: Any, **_: Any) -> Any:
        return change(real(module, backend="aot_eager"))

    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr("torch_ort.training._no_compiler", str)


def test_it_is_seen_through(shown_notices: Any) -> None:
    module = Block()
    model = wrapped(module)
    assert model.state_dict().keys() == module.state_dict().keys()
    assert [name for name, _ in model.named_parameters()] == list(module.state_dict())
    copied = copy.deepcopy(model)
    assert copied.module is not module and copied._parameters is copied.module._parameters
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    x = torch.randn(2, 16)
    for other in (copied, loaded):
        other.eval()
        torch.testing.assert_close(other(x), module.eval()(x))
        assert len(train(other)) == 5
    model.train()
    assert module.training and not model.eval().module.training
    assert model.to(torch.float64).module.inner.weight.dtype == torch.float64
    assert shown_notices() == []


def test_a_short_training_is_the_modules_own(shown_notices: Any) -> None:
    plain = Block()
    assert train(wrapped(copy.deepcopy(plain))) == train(plain)
    assert shown_notices() == []


def test_a_long_training_goes_through_torch_compile(
    monkeypatch: pytest.MonkeyPatch, shown_notices: Any
) -> None:
    quick_compile(monkeypatch, lambda run: run)
    monkeypatch.setenv("TORCH_ORT_TRIAL_AFTER_S", "0")
    monkeypatch.setattr("torch_ort.tensors.alternate", lambda first, second: (0.5, 1.0))
    plain = Block()
    model = wrapped(copy.deepcopy(plain))
    assert train(model, 8) == pytest.approx(train(plain, 8), rel=1e-5)
    (notice,) = shown_notices()
    assert "trains through torch.compile: forward and backward take 0.50 of the time" in notice
    assert model.state_dict().keys() == plain.state_dict().keys()


class Slow(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> Any:
        time.sleep(0.05)
        return self.module(x)


class Wrong(Slow):
    def forward(self, x: torch.Tensor) -> Any:
        return {**self.module(x), "logits": self.module(x)["logits"] + 1}


def fail(module: torch.nn.Module) -> Any:
    raise RuntimeError("no kernel for this\nand more")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Slow, "times as long"),
        (Wrong, "of the largest value apart, 1e-03 is allowed"),
        (fail, "RuntimeError: no kernel for this"),
    ],
)
def test_what_is_slower_or_differs_or_fails_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, shown_notices: Any, change: Compile, reason: str
) -> None:
    quick_compile(monkeypatch, change)
    monkeypatch.setenv("TORCH_ORT_TRIAL_AFTER_S", "0")
    plain = Block()
    assert train(wrapped(copy.deepcopy(plain)), 6) == train(plain, 6)
    (notice,) = shown_notices()
    assert "Block trains without torch.compile" in notice and reason in notice


def test_a_module_with_hooks_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, shown_notices: Any
) -> None:
    quick_compile(monkeypatch)
    plain = Block()
    calls: list[Any] = []
    plain.inner.register_forward_hook(lambda *call: calls.append(call))
    train(wrapped(plain, training="compile"), 3)
    assert len(calls) == 3
    assert shown_notices() == [
        "torch_ort: Block trains without torch.compile: it has hooks (Linear)"
    ]


def test_without_onnx_torch_answers_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, shown_notices: Any
) -> None:
    monkeypatch.setattr("torch_ort.inference._NEEDED", ("onnx_that_is_missing",))
    module = Block().eval()
    model = wrapped(module)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(model(torch.ones(2, 16)), module(torch.ones(2, 16)))
    assert shown_notices() == [
        "torch_ort: Block is answered by torch: onnx_that_is_missing is not installed"
    ]


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TORCH_ORT_TRAINING", "fast"), ("TORCH_ORT_TRIAL_AFTER_S", "soon")],
)
def test_a_value_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable} must be .*{value}"):
        wrapped(Block())


def test_mixed_precision_may_differ_by_its_last_digits() -> None:
    """Results of autocast are float32 and hold bfloat16's digits, as gradients do."""
    from torch_ort import tensors

    expected = torch.linspace(0.5, 1, 100)
    close, far = expected * (1 + 5e-3), expected * (1 + 5e-2)
    assert "1e-03 is allowed" in tensors.difference(close, expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert tensors.is_autocast()
        assert tensors.difference(close, expected) == ""
        assert "2e-02 is allowed" in tensors.difference(far, expected)
    assert not tensors.is_autocast()
