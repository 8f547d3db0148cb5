"""ZeRO on two CPU ranks over gloo: which stages train, with which losses, and what they save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

Run = Callable[..., list[Any]]
KINDS = ("0", "1", "1o", "2", "2o", "3", "3o", "3op")


def test_every_stage_has_ddps_losses_and_its_checkpoint_loads_in_plain_torch(run: Run) -> None:
    first, second = run("stages.py", *KINDS)
    for kind in KINDS:
        assert first[kind]["losses"] == pytest.approx(first["ddp"], rel=1e-5), kind
        assert first[kind]["losses"] == second[kind]["losses"]
        if kind[0] != "0":
            assert first[kind]["apart"] < 1e-5, kind
    assert first["1"]["optimizer"] == first["2o"]["optimizer"] == "DeepSpeedZeroOptimizer"
    assert first["3op"]["optimizer"] == "DeepSpeedZeroOptimizer_Stage3"
    # Between steps a rank of stage 3 holds no parameter whole.
    assert first["3"]["held"] == [[0]] * 4 and first["2"]["held"][0] == [16, 8]


def test_a_model_larger_than_a_ranks_memory_trains_when_it_is_sharded(run: Run) -> None:
    """192 MB of parameters, with gradients and Adam's state 768: each rank may have 720."""
    complete = run("larger_than_memory.py", "whole", "720")
    assert complete[0]["parameters_mb"] == pytest.approx(192, abs=1)
    assert "can't allocate memory" in complete[0]["error"], complete
    unlimited = run("larger_than_memory.py", "whole", "0")
    sharded = run("larger_than_memory.py", "sharded", "720")
    for answer in sharded:
        assert "error" not in answer, answer
        assert answer["losses"] == pytest.approx(unlimited[0]["losses"], rel=1e-3)
