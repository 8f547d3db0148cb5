"""What is told of a job that succeeded, by what it printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from torchyard.worker.diagnosis import silent_faults
from torchyard.worker.diagnosis.context import DiagnosisContext, DoneWork
from torchyard.worker.launch.ranks import Rank
from torchyard.worker.system.memory_kills import MemoryKills


def told(
    folder: Path,
    *logs: str,
    command: str = "python train.py",
    first: int = 0,
    alone: Sequence[int] = (),
    apart: bool = False,
    **work: Any,
) -> list[str]:
    ranks = []
    context = DiagnosisContext(0, True, folder / "work", folder, MemoryKills())
    for number, text in enumerate(logs):
        log = folder / f"std_log_process_{number}.txt"
        log.write_text(text)
        records = folder / f"rank-{first + number}"
        records.mkdir(exist_ok=True)
        how = "alone" if number in alone else "apart" if apart else ""
        (records / "7.left").write_text(f"{number} 1 {how}")
        ranks.append(Rank(first + number, number, log, log.name))
    return list(silent_faults.notices(ranks, context, DoneWork(command, **work)))


@pytest.mark.parametrize(("count", "is_told"), [(2, False), (3, True)])
def test_a_logged_metric_that_is_lost_until_the_end_is_told(
    count: int, is_told: bool, tmp_path: Path
) -> None:
    first = {"value": "NaN", "step": 7}
    (*sentences,) = told(tmp_path, STEPS, lost_figures={"loss": (first, count)})
    assert sentences == ["metric `loss` is NaN from step 7 on"] * is_told


@pytest.mark.parametrize(
    ("alone", "first", "is_told"),
    [((0, 1), 0, True), ((0,), 0, False), ((), 0, False), ((0, 1), 2, False)],
)
def test_ranks_that_never_speak_to_each_other_are_told_once(
    alone: Sequence[int], first: int, is_told: bool, tmp_path: Path
) -> None:
    sentences = told(tmp_path, STEPS, STEPS, alone=alone, first=first, has_logged=True)
    assert [each.startswith("2 ranks used torch") for each in sentences] == [True] * is_told


STEPS = "".join(f"step {step} loss {1 / (step + 1):.4f}\n" for step in range(7))


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ("".join(f"step {step} loss nan\n" for step in range(7, 20)), "`loss` is NaN from `step 7"),
        (
            "".join(f"step {step}: loss=NaN\n" for step in range(7, 12)),
            "from `step 7: loss=NaN` on",
        ),
        ("".join(f"perplexity: inf, {step}\n" for step in range(5)), "`perplexity` is infinite"),
        ("step 7 loss nan\nstep 8 loss 0.3\nstep 9 loss nan\n", ""),
        ("nan values were dropped\ninformation inf\n", ""),
    ],
)
def test_a_figure_that_is_lost_until_the_end_is_told(tail: str, words: str, tmp_path: Path) -> None:
    sentences = told(tmp_path, STEPS + tail)
    assert len(sentences) == bool(words)
    assert all(words in each and each.startswith("rank 0: ") for each in sentences)


@pytest.mark.parametrize(
    ("value", "is_told"), [("0.693147", True), ("0.0000", True), ("1e-7", False), ("0.10", False)]
)
def test_a_loss_that_never_changes_is_told(value: str, is_told: bool, tmp_path: Path) -> None:
    sentences = told(tmp_path, f"epoch 1 loss {value}\n" * 30 + "seed 42\n" * 30)
    assert len(sentences) == is_told


AT_EXIT = """Exception ignored in atexit callback <function save at 0x7f>:
Traceback (most recent call last):
  File "/job/work/train.py", line 9, in save
    json.dump(results, file)
TypeError: Object of type int64 is not JSON serializable
"""


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        (
            STEPS + AT_EXIT,
            "failed: TypeError: Object of type int64 is not JSON serializable (/job/w",
        ),
        ("W WARNING could not save step 3: No space\n" * 3, "`W WARNING could not save"),
        ("WARNING could not save step 3\n" * 2 + STEPS, ""),
        ("test error 0.25\nWARNING: 3 workers\nERROR rate 0.1\n" * 9, ""),
        ("overflow, skipping the step, scale 2.0\n" * 4, ", and so 4 times"),
        ("skipping the header\n" * 4 + STEPS * 4, ""),
        ("epoch 1: 0 batches\nepoch 2: 0 batches\n", "or steps are empty: `epoch 2: 0 batches`"),
        ("0 files of 3 are new\n3 files read\n", ""),
        ("epoch 1: 0 samples skipped\nepoch 2: 0 samples skipped\n", ""),
        ("0 rows dropped\n" * 3, ""),
        ("".join(f"loss {2.0**step}\n" for step in range(12)), "`loss` grew from 1.0 to 2048.0"),
        ("".join(f"loss {2.0**-step}\n" for step in range(12)), ""),
    ],
)
def test_what_a_script_says_of_its_own_failures_is_told(
    log: str, sentence: str, tmp_path: Path
) -> None:
    sentences = told(tmp_path, log, has_logged=True)
    assert len(sentences) == bool(sentence)
    assert all(sentence in each for each in sentences)


def test_a_loss_of_which_only_the_end_is_read_may_have_changed(tmp_path: Path) -> None:
    assert not told(tmp_path, "epoch 1 loss 0.512345\n" + "epoch 1 loss 0.412345\n" * 4000)


def test_ranks_that_do_nothing_are_told_unless_they_logged_or_are_alone(tmp_path: Path) -> None:
    (sentence,) = told(tmp_path, "", "")
    assert sentence.startswith("nothing was printed")
    assert not told(tmp_path, "")
    assert not told(tmp_path, "", "", has_logged=True)
    # Only rank 0 prints, on another node.
    assert not told(tmp_path, "", "", is_whole=False, first=2)
    assert not told(tmp_path, "", "done\n")


@pytest.mark.parametrize(
    ("command", "asks"),
    [
        ("python train.py --accelerator gpu --devices 2", True),
        ("python train.py --device=cuda:0", True),
        ("python train.py --no-cuda", False),
        ("python gpu.py --out cuda.txt", False),
    ],
)
def test_a_gpu_that_is_asked_for_and_not_there(command: str, asks: bool, tmp_path: Path) -> None:
    assert len(told(tmp_path, "x", command=command)) == asks
    assert not told(tmp_path, "x", command=command, has_gpus=True)
    assert not told(tmp_path, "x", command=command, is_whole=False, first=2)


@pytest.mark.parametrize(
    ("logs", "words"),
    [
        (
            ["step 1\nstep 3\nstep 9\n", "step 1\nstep 3\n", "step 1\nstep 3\nstep 9\n"],
            "rank 1 ended early: its last step is 3, that of",
        ),
        (["step 0\nstep 9\n", "step 3\n"], ""),
        (["step 9\n", "step 8\n"], ""),
        (["step 9\n", "no steps\n", "step 9\n"], ""),
        (["step 9\n", "step 3\n", "step 5\n"], ""),
        (["step 29/100 loss 0.1\n"], "the script ended at step 29 of 100"),
        (["".join(f"step {step}/100\n" for step in range(0, 100, 10))], ""),
        (
            ["".join(f"step {step}/100\n" for step in range(0, 50, 10))],
            "the script ended at step 40",
        ),
        (["step 0\nstep 50\n", "step 0\nstep 50\nstep 99\n"], ""),
        (["epoch 9/10\n"], ""),
        (["epoch: 10 / 10\n"], ""),
    ],
)
def test_steps_that_are_missing_are_told(logs: list[str], words: str, tmp_path: Path) -> None:
    sentences = told(tmp_path, *logs)
    assert len(sentences) == bool(words) and all(each.startswith(words) for each in sentences)


def test_only_a_few_are_told(tmp_path: Path) -> None:
    text = "".join(f"a{number} nan\n" * 3 for number in range(50))
    assert len(told(tmp_path, text)) == 3


SAME = [f"training on part {rank}\n{STEPS}" for rank in range(3)]
OTHERS = [STEPS, STEPS.replace("0.5000", "0.5001")]
COARSE = ["".join(f"loss {1 / (step + 1):.1f}\n" for step in range(40))] * 2


@pytest.mark.parametrize(
    ("logs", "work", "is_told"),
    [
        (SAME, {}, True),
        (SAME, {"apart": False}, False),
        (SAME, {"command": "./train && python report.py"}, False),
        (SAME, {"first": 3}, False),
        (SAME[:1], {}, False),
        (OTHERS, {}, False),
        (COARSE, {}, False),
        (["done 12.345\n" * 9] * 2, {}, False),
    ],
)
def test_ranks_that_did_the_same_without_a_way_to_tell_each_other_are_told(
    logs: list[str], work: dict[str, Any], is_told: bool, tmp_path: Path
) -> None:
    sentences = told(tmp_path, *logs, **({"apart": True} | work))
    assert [each.partition(" and")[0] for each in sentences] == [
        "3 ranks printed the same 7 values of `loss`,"
    ] * is_told


RESUMED = "resuming from last.pt at epoch 10\n"


@pytest.mark.parametrize(
    ("logs", "work", "is_told"),
    [
        ([RESUMED + "done\n"], {}, True),
        (["hello\n", RESUMED], {}, True),
        ([RESUMED + "loading\n" + RESUMED + "epoch 10: fine\n"], {}, False),
        ([RESUMED + "train loss 0.25\n"], {}, False),
        ([RESUMED + "100%|####| 3/3\n"], {}, False),
        ([RESUMED + "".join(f"file {name} is written\n" for name in "abcdef")], {}, False),
        # Only rank 0 prints what it does; another may do so on another node.
        ([STEPS, RESUMED], {}, False),
        ([RESUMED], {"is_whole": False}, False),
        ([RESUMED], {"has_logged": True}, False),
        (["resuming at epoch 0\n"], {}, False),
        (["loaded the weights of epoch 10\npredicting\n"], {}, False),
    ],
)
def test_ranks_that_show_no_work_after_they_resumed_are_told_once(
    logs: list[str], work: dict[str, Any], is_told: bool, tmp_path: Path
) -> None:
    assert (
        told(tmp_path, *logs, **work)
        == [f"it printed `{RESUMED.strip()}`, and no epoch, step or figure after that"] * is_told
    )


def around(
    level: float, falls: float = 0.0, lines: int = 100, name: str = "loss", scatter: float = 0.02
) -> str:
    return "".join(
        f"step {step} {name} {level + level * scatter * (-1) ** step - falls * step / lines:.4f}\n"
        for step in range(lines)
    )


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            around(0.6931),
            "`loss` stays near 0.6931 in its 100 lines, the loss of guessing one of 2",
        ),
        (around(2.3026, name="train_loss"), "`train_loss` stays near 2.303"),
        (around(0.6931, falls=0.002, scatter=0.0001), ""),
        (around(0.6931, falls=0.2), ""),
        (around(0.71), ""),
        (around(0.6931) + "loss inf\nloss 0.6\n", ""),
        (around(0.6931, lines=30), ""),
        # As it should be for one that judges what another makes.
        (around(0.6931, name="loss_d"), ""),
        ("".join(f"epoch {n} val acc {0:.4f}\n" for n in range(10)), "`acc` is 0.0000 in all of"),
        ("".join(f"epoch {n} val_acc {0:.4f}\n" for n in range(10)), "`val_acc` is 0.0000 in all"),
        ("".join(f"epoch {n} val acc {0:.4f}\n" for n in range(9)), ""),
        ("".join(f"step {n} acc {0:.4f}\n" for n in range(30)), ""),
        ("".join(f"epoch {n} val acc {n / 9000:.4f}\n" for n in range(10)), ""),
        ("".join(f"epoch {n} val errors 0\n" for n in range(30)), ""),
    ],
)
def test_figures_of_a_model_that_learned_nothing_are_told(
    log: str, words: str, tmp_path: Path
) -> None:
    sentences = told(tmp_path, log)
    assert len(sentences) == bool(words)
    assert all(words in each for each in sentences)
