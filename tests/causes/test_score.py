"""The corpus can be read, and what launchers say of it is judged by its own rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from causes import fault, score
from causes.fault import HELD_BACK, OPEN, Fault
from causes.score import Answer
from torchyard.worker.diagnosis import cause_rules

DOCUMENT: dict[str, Any] = {
    "about": "rank 1 raises while the others wait for it",
    "kind": "exception",
    "processes": 3,
    "right": {
        "ends": "Failed",
        "rank": 1,
        "node": 0,
        "file": "train.py",
        "code": "exception|collective_mismatch",
        "cause": "bad label 7",
        "collective": "all_reduce",
    },
    "never": ["connection closed"],
}
SCRIPT = 'print("epoch 0")\nraise ValueError("bad label 7")  # here\nall_reduce()  # here\n'
SAID = "rank 1: ValueError: bad label 7 (train.py line 2); the others wait in all_reduce"
RIGHT = Answer("bad-label", "Failed", SAID, "exception")


def _write(folder: Path, document: dict[str, Any], script: str = SCRIPT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / fault.FILE).write_text(yaml.safe_dump(document))
    (folder / "train.py").write_text(script)
    return folder


@pytest.fixture
def bad_label(tmp_path: Path) -> Fault:
    return fault.read(_write(tmp_path / "bad-label", DOCUMENT))


def test_a_fault_is_read_with_its_marked_lines(bad_label: Fault) -> None:
    assert (bad_label.name, bad_label.lines) == ("bad-label", (2, 3))
    assert (bad_label.command, bad_label.environment) == ("python train.py", "torch")
    assert bad_label.never == ("connection closed",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"proceses": 3}, "no key of a fault: proceses"),
        ({"right": {**DOCUMENT["right"], "lines": 3}}, "no key of a fault: lines"),
        ({"kind": "bug"}, "`kind: bug` is none of"),
        ({"environment": "conda"}, "`environment: conda` is none of"),
        ({"right": {**DOCUMENT["right"], "ends": "Stalls"}}, "`right.ends: Stalls` is none of"),
    ],
)
def test_a_key_or_value_that_nobody_knows_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        fault.read(_write(tmp_path, DOCUMENT | changes))


def test_a_script_without_a_mark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no line ends with `# here`"):
        fault.read(_write(tmp_path, DOCUMENT, "all_reduce()  # hereafter\n"))


def test_faults_are_found_by_name_in_order(tmp_path: Path) -> None:
    for name in ("late", "early", "other"):
        _write(tmp_path / name, DOCUMENT)
    assert [each.name for each in fault.all_in(tmp_path)] == ["early", "late", "other"]
    assert [each.name for each in fault.all_in(tmp_path, ["late", "none"])] == ["late"]


def test_the_right_answer_is_right(bad_label: Fault) -> None:
    judged = score.judge(bad_label, RIGHT)
    assert judged.is_right and not judged.wrong and not judged.blames


@pytest.mark.parametrize(
    ("question", "changes"),
    [
        ("end", {"end": "still Running"}),
        ("rank", {"text": SAID.replace("rank 1", "a rank")}),
        ("line", {"text": SAID.replace("line 2", "line 1")}),
        ("line", {"text": SAID.replace("line 2", "line 21")}),
        ("line", {"text": SAID.replace("train.py", "data.py")}),
        ("cause", {"text": SAID.replace("bad label 7", "bad label")}),
        ("cause", {"code": "peer_lost"}),
        ("collective", {"text": SAID.replace("all_reduce", "all_gather")}),
    ],
)
def test_each_question_is_wrong_by_itself(
    question: str, changes: dict[str, Any], bad_label: Fault
) -> None:
    judged = score.judge(bad_label, replace(RIGHT, **changes))
    assert (judged.wrong, judged.blames, judged.is_right) == ((question,), "", False)


def test_any_marked_line_and_any_code_will_do(bad_label: Fault) -> None:
    said = SAID.replace("line 2", "line 3")
    assert score.judge(bad_label, replace(RIGHT, text=said, code="collective_mismatch")).is_right


@pytest.mark.parametrize(
    ("text", "blames"),
    [
        (f"rank 2 failed; {SAID}", "rank 2"),
        (f"{SAID}; rank 0: Connection closed by peer", "`Connection closed`"),
    ],
)
def test_who_blames_another_one_is_wrong(text: str, blames: str, bad_label: Fault) -> None:
    judged = score.judge(bad_label, replace(RIGHT, text=text))
    assert (judged.wrong, judged.blames, judged.is_right) == ((), blames, False)


def test_nobody_is_blamed_where_nobody_is_to_blame(bad_label: Fault) -> None:
    right = replace(bad_label.right, rank=None, file=None, collective=None)
    said = "ranks 0 and 2 failed: bad label 7"
    assert score.judge(replace(bad_label, right=right), replace(RIGHT, text=said)).is_right


def test_another_launchers_words_count_without_a_code(bad_label: Fault) -> None:
    summary = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_13:18:39
  rank      : 1 (local_rank: 0)
  exitcode  : 1 (pid: 21593)
  traceback : Traceback (most recent call last):
    File "/tmp/causes/bad-label/train.py", line 2, in <module>
      raise ValueError("bad label 7")
  ValueError: bad label 7
"""
    judged = score.judge(bad_label, Answer("bad-label", "Failed", summary))
    assert (judged.wrong, judged.blames) == (("collective",), "")


def test_the_table_counts_by_kind(bad_label: Fault) -> None:
    hang = replace(bad_label, kind="stall")
    silent = replace(RIGHT, text="")
    blaming = replace(RIGHT, text=f"rank 2 failed; {SAID}")
    judged = [score.judge(bad_label, RIGHT), score.judge(bad_label, blaming)]
    rows = score.by_kind([*judged, score.judge(hang, silent)]).splitlines()
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]] == [
        ["exception", "2", "1 (50 %)", "", "", "", "", "", "1"],
        ["stall", "1", "0 (0 %)", "", "1", "1", "1", "1", ""],
        ["**all**", "3", "1 (33 %)", "", "1", "1", "1", "1", "1"],
    ]


def test_a_transcript_says_what_was_said_and_what_is_wrong(bad_label: Fault) -> None:
    text = score.transcript(score.judge(bad_label, replace(RIGHT, end="Completed", text="done")))
    assert text == (
        "bad-label: rank 1 raises while the others wait for it\n"
        "  wrong: end, rank, line, cause, collective\n"
        "  Completed [exception]\n    done\n"
    )


def test_every_fault_of_the_corpus_is_as_it_must_be() -> None:
    codes = {rule.code for rule in cause_rules.RULES} | {"collective_mismatch"}
    codes |= {code for code, _ in cause_rules.OTHER_CODES}
    codes |= {"interface_missing"}  # found before the first rank starts
    faults = [*fault.all_in(OPEN), *fault.all_in(HELD_BACK)]
    names = Counter(each.name for each in faults)
    assert [name for name, count in names.items() if count > 1] == []
    for each in faults:
        assert not each.about.endswith("."), each.name
        # Of what ends otherwise, a notice tells, which has no code.
        assert bool(each.right.code) == (each.right.ends == "Failed"), each.name
        assert not each.right.code or set(each.right.code.split("|")) <= codes, each.name
        assert each.right.node is None or each.right.node < each.nodes, each.name
        assert each.right.rank is None or each.right.rank < _most_ranks(each), each.name


def _most_ranks(each: Fault) -> int:
    """Of a job of one process it isn't known how many its own launcher starts."""
    return each.nodes * each.processes if each.nodes * each.processes > 1 else 64
