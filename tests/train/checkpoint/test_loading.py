"""Checkpoints that do and don't fit a state."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchyard.train.checkpoint import CheckpointMismatch, loading
from train.checkpoint.saving import save, weights

pytestmark = pytest.mark.torch


def test_a_state_gets_its_own_tensors_filled(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    weight = torch.zeros(3, 4)
    state = {"model": {"weight": weight}, "epoch": 0}
    loaded = loading.load_into(state, info, strict=True)
    assert torch.equal(weight, weights()["model"]["weight"])
    assert loaded["epoch"] == 4


def test_every_key_that_does_not_fit_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    bias = torch.full((3,), 7.0)
    state = {
        "model": {"weight": torch.zeros(4, 3), "bias": bias, "scale": torch.zeros(1)},
        "epoch": torch.zeros(1),
        "empty": 5,
        "loss": 0.5,
    }
    with pytest.raises(CheckpointMismatch) as raised:
        loading.load_into(state, info, strict=True)
    assert raised.value.problems == (
        "`model.weight` has shape [4, 3] here and [3, 4] in the checkpoint",
        "`model.scale` is not in the checkpoint",
        "`epoch` is a tensor here and none in the checkpoint",
        "`empty` is a tensor in the checkpoint and none here",
        "`loss` is not in the checkpoint",
    )
    assert torch.equal(bias, torch.full((3,), 7.0))
    assert "hint: load it into" in str(raised.value)


def test_without_strict_the_rest_is_loaded(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    model = torch.nn.ParameterDict({"weight": torch.zeros(3, 4), "scale": torch.full((1,), 7.0)})
    loaded = loading.load_into({"model": model, "epoch": 0}, info, strict=False)
    assert torch.equal(model["weight"], weights()["model"]["weight"])
    assert model["scale"].item() == 7.0
    assert loaded["epoch"] == 4


def test_without_a_state_all_of_it_is_returned(tmp_path: Path) -> None:
    loaded = loading.load_all(save(tmp_path, weights()))
    assert loaded["epoch"] == 4
    assert loaded["empty"].shape == (0, 2) and loaded["empty"].dtype == torch.bfloat16
    assert torch.equal(loaded["model"]["weight"], weights()["model"]["weight"])
