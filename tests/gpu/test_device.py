"""A GPU that torch finds, ranks that reach each other, and training on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpu import conftest, launching

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


def test_a_device_is_found(device: str) -> None:
    import torch

    values = torch.arange(10.0, device=device)
    assert (values * 2).sum().item() == 90
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        print(torch.cuda.get_device_name(), f"{free / 2**30:.0f} of {total / 2**30:.0f} GiB free")


def test_ranks_reach_each_other(device: str, ranks: int) -> None:
    answers = launching.run("nccl_preflight.py", ranks, device)
    assert len({answer["device"] for answer in answers}) == (ranks if device == "cuda" else 1)
    print("all_reduce:", [f"{answer['gigabytes_s']:.1f} GB/s" for answer in answers])
    assert all(answer["gigabytes_s"] > 0.001 for answer in answers)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_digits_are_learned_by_ddp(device: str, ranks: int, precision: str) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    answers = launching.run("train_digits.py", ranks, device, precision)
    assert {answer["logits"] for answer in answers} == {f"torch.{precision}"}
    assert len({answer["weights"] for answer in answers}) == 1, answers
    assert answers[0]["accuracy"] > 0.93, answers
    assert answers[0]["losses"][-1] < answers[0]["losses"][0] / 2


def test_a_checkpoint_from_device_memory_is_equal_bit_for_bit(device: str, tmp_path: Path) -> None:
    import torch

    from torchyard.train.checkpoint import Checkpointer

    def trained(seed: int, steps: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.Linear(256, 8)
        ).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for _ in range(steps):
            model(torch.randn(32, 64, device=device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    model, optimizer = trained(1, 5)
    half = torch.randn(1000, device=device, dtype=torch.bfloat16)
    checkpointer = Checkpointer(tmp_path)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    pending = checkpointer.save(5, {"model": model, "optimizer": optimizer, "half": half})
    # The copy in memory is what is saved, whatever training does meanwhile.
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    pending.wait(100)
    other, other_optimizer = trained(2, 1)
    state = {"model": other, "optimizer": other_optimizer, "half": torch.zeros_like(half)}
    loaded = checkpointer.load(state)
    assert loaded is not None and loaded[0] == 5
    for name, value in other.state_dict().items():
        assert value.device.type == device and torch.equal(value, expected[name]), name
    saved, restored = (
        [value for state in each.state_dict()["state"].values() for value in state.values()]
        for each in (optimizer, other_optimizer)
    )
    assert all(torch.equal(a, b) for a, b in zip(saved, restored, strict=True))
    checkpointer.close()


def test_without_a_device_the_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """This one needs none: what the others skip by."""
    if not conftest.HAS_TORCH:
        assert conftest.reason_without() == "torch is not installed"
        return
    monkeypatch.setenv("TORCHYARD_GPU_TESTS_DEVICE", "cpu")
    assert conftest.reason_without() == ""
    import torch

    monkeypatch.setenv("TORCHYARD_GPU_TESTS_DEVICE", "cuda")
    assert bool(conftest.reason_without()) != torch.cuda.is_available()
    assert os.environ["TORCHYARD_GPU_TESTS_DEVICE"] == "cuda"
