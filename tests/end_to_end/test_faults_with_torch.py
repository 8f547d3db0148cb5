"""Errors of jobs with torch name rank and cause: process groups, data loaders, launchers."""

from __future__ import annotations

from typing import Any

import pytest

from faults import corpus
from faults.with_torch import TORCH_FAULTS, TORCH_SCRIPTS

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(480)]

RIGHT = 0.95


def test_errors_name_rank_and_cause(torch_environment: dict[str, Any]) -> None:
    with corpus.scratch_home() as home:
        answers = corpus.run(TORCH_FAULTS, home, TORCH_SCRIPTS, torch_environment)
    table = corpus.table(answers)
    print(f"\n{table}")
    right = sum(not answer.wrong for answer in answers)
    assert right >= RIGHT * len(answers), table
