"""The corpus of faults in its bounded form: no torch, all jobs at once on one server.

The whole corpus is run by `python tests/faults/corpus.py`.
"""

from __future__ import annotations

import pytest

from faults import corpus
from faults.known import BOUNDED

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(480)]

RIGHT = 0.95


def test_errors_name_rank_and_cause() -> None:
    with corpus.scratch_home() as home:
        answers = corpus.run(BOUNDED, home)
    table = corpus.table(answers)
    print(f"\n{table}")
    right = sum(not answer.wrong for answer in answers)
    assert len(BOUNDED) >= 40
    assert right >= RIGHT * len(answers), table
