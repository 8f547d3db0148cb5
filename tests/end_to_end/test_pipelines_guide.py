"""The guide's commands, run as they stand, with the files that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from end_to_end.test_guides import lines, named_files, run
from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(600)]
GUIDE = "docs/guides/pipelines.md"


def test_the_guides_pipelines_run(yard: Yard, tmp_path: Path) -> None:
    named_files(GUIDE, tmp_path)
    # Lineage is one of jobs, data and models alike: tests/lineage.
    typed = [
        line
        for line in lines(GUIDE)
        if " model lineage" not in line and " data lineage" not in line
    ]
    printed = {line: run(yard, line.replace("NAME", "first-pipeline"), tmp_path) for line in typed}
    assert len(printed) == 13
    assert "first-pipeline_train" in printed["yard job lineage -n NAME"]
    assert (tmp_path / "made/named-outputs/model/model.txt").read_text() == "10.0\n"
    steps = printed["python build.py"].split("\n")
    assert [line.split()[:2] for line in steps if line] == [
        [step, "completed"] for step in ("prepared", "slow.train", "fast.train", "shown")
    ]
    assert "fast.train" in printed["yard job create -f both.yml -n both --stream"]
