"""Jobs with torch that go wrong name rank, line and cause: process groups, loaders, launchers.

Every second fault of the corpus; `make causes` runs all.
"""

from __future__ import annotations

import pytest

from causes import score, torchyard_jobs
from causes.fault import OPEN, all_in
from causes.scratch_home import scratch_home
from end_to_end.shared_torch import SharedTorch

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

RIGHT = 0.95


def test_rank_line_and_cause_are_named(shared_torch: SharedTorch) -> None:
    faults = [fault for fault in all_in(OPEN) if fault.environment == "torch"][::2]
    with scratch_home() as home:
        answers = torchyard_jobs.run(faults, home, {"torch": shared_torch.lend(home)})
    judged = [score.judge(*each) for each in zip(faults, answers, strict=True)]
    table = score.report(judged)
    print(f"\n{table}")
    assert sum(each.is_right for each in judged) >= RIGHT * len(faults), table
