"""Whatever a rank leaves, its node's diagnosis is quick, and its report small."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import steps
from torchyard.shared.failures import Failure
from torchyard.worker.diagnosis import diagnosis
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.launch.ranks import Rank, RankExit
from torchyard.worker.system.memory_kills import MemoryKills

pytestmark = pytest.mark.slow

NOW = 1_800_000_000.0
START = "Traceback (most recent call last):\n"
# Lines of Python; each of these took minutes or for ever before.
MOST_STEPS = 20_000_000
LINES = [
    "A" * 60_000,
    "a" + "A" * 60_000 + ":",
    "a." * 30_000,
    "[/gloo/" * 9_000,
    "liba.so" * 9_000,
    "liba.so.so" * 6_000 + ": cannot open",
    "DataLoader worker" * 3_800,
    "store->get(" * 5_800,
    "unable to mmap" * 4_500,
    "sh: 1: " * 9_000,
    "1" * 60_000,
    'File "' * 10_000,
    '  File "a", line 1 in ' * 2_900,
    '  File "a", line ' + "9" * 60_000,
    '  File "' + "a" * 60_000 + '", line 1, in f',
    " " * 60_000,
    "x: " * 20_000,
]


def record(**fields: Any) -> dict[str, Any]:
    base = {
        "kind": "exception",
        "type": "ValueError",
        "message": "x",
        "traceback": f'{START}  File "/x/job.py", line 1, in f\n    f()\nValueError: x\n',
        "at": NOW,
        "started": NOW,
        "pid": 7,
        "parent": 1,
        "status": None,
        "said": "",
        "callers": [],
    }
    return {**base, **fields}


class Node:
    """The folders of a node with one rank."""

    def __init__(self, top: Path) -> None:
        self.log = top / "log.txt"
        self.log.write_text("")
        self.errors = top / "errors" / "rank-0"
        self.errors.mkdir(parents=True)
        kills = MemoryKills(top / "no-cgroups", top / "no-proc")
        self.context = DiagnosisContext(0, True, top, top / "errors", kills)

    def diagnose(self, exit_code: int = 1, signal: int = 0) -> dict[str, Any]:
        exit = RankExit(Rank(0, 0, self.log, "log.txt"), exit_code, signal, 7, NOW)
        causes = list[Failure | None]()
        steps.at_most(
            MOST_STEPS, lambda: causes.append(diagnosis.root_cause([exit], self.context, NOW))
        )
        (failure,) = causes
        assert failure is not None
        report = failure.to_dict()
        assert len(json.dumps(report)) < 200_000
        assert len(report["message"]) < 5_000
        return report


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("exit_code", [1, 126, 127])
def test_no_line_of_a_log_keeps_the_diagnosis_busy(node: Node, exit_code: int) -> None:
    for line in LINES:
        for text in (f"{START}{line}\n", line, f"{START}  {line}\nValueError: {line}\n"):
            node.log.write_text(text)
            node.diagnose(exit_code)


def test_no_record_keeps_the_diagnosis_busy(node: Node) -> None:
    for line in LINES:
        fields = record(message=line[:30_000], traceback=f"{START}{line[:30_000]}\n" * 2)
        (node.errors / "1.json").write_text(json.dumps(fields))
        node.diagnose()


def test_many_records_and_stacks_are_read_up_to_a_limit(node: Node) -> None:
    for number in range(300):
        fields = record(traceback='  File "a", line 1, in f\n' * 4_000, pid=number)
        (node.errors / f"{number:04}.json").write_text(json.dumps(fields))
        (node.errors / f"{number}.stack").write_text("Fatal Python error\n" * 5_000)
    node.diagnose()
    node.diagnose(139, 11)


@pytest.mark.parametrize(
    "fields",
    [
        {"at": float("inf")},
        {"at": float("nan")},
        {"at": 1e300},
        {"at": -1},
        {"pid": float("inf")},
        {"status": "9" * 5000},
        {"type": {"a": 1}, "message": ["x"]},
        {"callers": ["a"]},
        {"callers": 7},
        {"callers": [["a", "b", "c"]]},
    ],
    ids=lambda fields: str(fields)[:30],
)
def test_a_forged_record_counts_as_missing_or_as_text(node: Node, fields: dict[str, Any]) -> None:
    (node.errors / "1.json").write_text(json.dumps(record(**fields)))
    (node.errors / "2.json").write_text("[" * 100_000)
    assert node.diagnose()["code"] in ("rank_failed", "exception")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(node: Node) -> None:
    for name in ("1.json", "7.stack"):
        os.mkfifo(node.errors / name)
    node.log.unlink()
    os.mkfifo(node.log)
    assert node.diagnose()["code"] == "hard_exit"
    assert node.diagnose(139, 11)["code"] == "segmentation_fault"
