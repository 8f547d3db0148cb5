"""Errors of jobs with torch name rank and cause: process groups, data loaders, launchers."""

from __future__ import annotations

import pytest

from end_to_end.shared_torch import SharedTorch
from faults import corpus
from faults.with_torch import TORCH_FAULTS, TORCH_SCRIPTS

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

RIGHT = 0.95


def test_errors_name_rank_and_cause(shared_torch: SharedTorch) -> None:
    with corpus.scratch_home() as home:
        answers = corpus.run(TORCH_FAULTS, home, TORCH_SCRIPTS, shared_torch.lend(home))
    table = corpus.table(answers)
    print(f"\n{table}")
    right = sum(not answer.wrong for answer in answers)
    assert right >= RIGHT * len(answers), table
