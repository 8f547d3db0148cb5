"""DeepSpeed's fused Adam as a rehearsal computes it, beside torch's own optimizers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from torchyard.worker.in_rank import rehearsal_deepspeed

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

LR, BETAS, EPSILON, DECAY = 0.01, (0.8, 0.999), 1e-8, 0.1
STEPS = 5


def _kernel() -> Any:
    module = SimpleNamespace(FusedAdamBuilder=type("FusedAdamBuilder", (), {}))
    rehearsal_deepspeed.change_fused_adam(module)
    return module.FusedAdamBuilder().load().multi_tensor_adam


def _steps(mode: int, dtype: Any) -> Any:
    parameter = torch.linspace(-1, 1, 7).to(dtype)
    average, square = torch.zeros(7), torch.zeros(7)
    for step in range(1, STEPS + 1):
        gradient = (2 * parameter.float() + 0.5).to(dtype)
        _kernel()(
            65536, torch.zeros(1), [[gradient], [parameter], [average], [square]], LR, *BETAS,
            EPSILON, step, mode, 1, DECAY,
        )  # fmt: skip
    return parameter


@pytest.mark.parametrize(("mode", "optimizer"), [(1, "AdamW"), (0, "Adam")])
def test_it_steps_as_torch_does(mode: int, optimizer: str) -> None:
    expected = torch.nn.Parameter(torch.linspace(-1, 1, 7))
    steps = getattr(torch.optim, optimizer)([expected], LR, BETAS, EPSILON, DECAY)
    for _ in range(STEPS):
        expected.grad = (2 * expected.data) + 0.5
        steps.step()
    torch.testing.assert_close(_steps(mode, torch.float32), expected.data)


def test_parameters_of_half_precision_are_changed_in_place() -> None:
    changed = _steps(1, torch.bfloat16)
    assert changed.dtype == torch.bfloat16
    torch.testing.assert_close(changed.float(), _steps(1, torch.float32), atol=0.02, rtol=0)


def test_the_line_of_deepspeeds_speed_has_no_figure_of_memory() -> None:
    accelerator = SimpleNamespace(memory_allocated=None, current_device=lambda: 0)
    timer = SimpleNamespace(get_accelerator=lambda: accelerator)
    rehearsal_deepspeed.leave_out_memory(timer)
    assert str(round(timer.get_accelerator().memory_allocated() / 1024**3, 2)) == "nan"
    assert timer.get_accelerator().current_device() == 0
