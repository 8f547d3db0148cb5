"""The guide's walk-through, run as it is written, in an environment that it builds."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from end_to_end.yard_under_test import REPOSITORY, Yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]


def test_the_guides_sweeps_run(yard: Yard, tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs/guides/sweeps.md").read_text()
    for name, text in re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", guide, re.DOTALL):
        (tmp_path / name).write_text(text)
    lines = "".join(re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)).splitlines()
    assert len(lines) == 6
    printed = [_run(yard, line, tmp_path) for line in lines]
    assert "trial first-sweep_7 ended: completed" in printed[0]
    assert "Best" in printed[1] and "Parallel coordinates" in printed[1]
    rows = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert len(rows) == 8
    best = min(rows, key=lambda row: float(row["value"]))
    first = yard.completed("first-sweep")
    assert first["properties"]["best_child_run_id"] == best["name"]
    children = json.loads(yard("job", "list", "-p", "second-sweep", "-o", "json"))
    assert yard.job("second-sweep")["status"] == "Completed" and len(children) == 8


def _run(yard: Yard, line: str, folder: Path) -> str:
    words = shlex.split(line)
    assert words[0] == "yard"
    with yard.start(
        *words[1:], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, (line, out, errors)
    return out.decode()
