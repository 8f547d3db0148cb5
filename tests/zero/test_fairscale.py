"""fairscale 0.4.13 beside torch 2.13, and torchyard's layer in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zero.ranks import COMPAT

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

Run = Callable[..., list[Any]]
NAMES = ("oss", "sdp", "fsdp", "checkpoint")


def test_the_layer_has_ddps_losses_by_every_name(run: Run) -> None:
    for answer in run("fairscale_names.py", *NAMES, PYTHONPATH=str(COMPAT / "fairscale" / "src")):
        assert answer.pop("file").startswith(str(COMPAT))
        assert all(isinstance(apart, float) and apart < 1e-5 for apart in answer.values()), answer


def test_the_original_is_wrong_where_the_layer_says_so(run: Run) -> None:
    """When this fails, fairscale has had a release: the layer may no longer be needed."""
    answer = run("fairscale_names.py", *NAMES)[0]
    assert not answer["file"].startswith(str(COMPAT))
    assert answer["oss"] < 1e-5 and answer["checkpoint"] < 1e-5
    assert answer["sdp"] > 0.1
    assert answer["fsdp"] == "KeyError: 'all_gather'"
