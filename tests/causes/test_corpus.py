"""The open faults that need no torch, as jobs of one server.

The whole corpus is run by `make causes`.
"""

from __future__ import annotations

import pytest

from causes import score, sites
from causes.fault import OPEN, all_in

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(480)]

RIGHT = 0.95


def test_rank_line_and_cause_are_named() -> None:
    faults = [fault for fault in all_in(OPEN) if fault.environment == "python"]
    answers = sites.run("torchyard", faults, lambda _: None)
    judged = [score.judge(*each) for each in zip(faults, answers, strict=True)]
    table = score.report(judged)
    print(f"\n{table}")
    assert len(faults) >= 80
    assert sum(each.is_right for each in judged) >= RIGHT * len(faults), table
