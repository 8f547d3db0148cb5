"""What is told of a job that succeeded, by what it printed."""

from __future__ import annotations

import os
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
    **work: Any,
) -> list[str]:
    ranks = []
    context = DiagnosisContext(0, True, folder / "work", folder, MemoryKills())
    for number, text in enumerate(logs):
        log = folder / f"std_log_process_{number}.txt"
        log.write_text(text)
        records = folder / f"rank-{first + number}"
        records.mkdir(exist_ok=True)
        (records / "7.left").write_text(f"{number} 1 {'alone' if number in alone else ''}")
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
    text = "".join(f"loss{number} nan\n" * 3 for number in range(50))
    assert len(told(tmp_path, text)) == 3


HELP = """usage: train.py [-h] [-s STEPS]

Trains a tagger.

options:
  -h, --help            show this help message and exit
  -s STEPS, --steps STEPS
"""


@pytest.mark.parametrize(
    ("command", "log", "is_told"),
    [
        ("python train.py -s 4 -h 256", HELP, True),
        ("python train.py", f"torch 2.9\n{HELP}", True),
        ("python train.py", HELP.replace("-h, --help            show", "--help  Show"), True),
        ("python train.py --help", HELP, False),
        ("python train.py -h", HELP, False),
        ("python train.py -h | head -n 3", HELP, False),
        ("python train.py -h > help.txt; cat help.txt", HELP, False),
        ("python train.py -h 2>&1 | tee x", HELP, False),
        ("python train.py --help; ls", HELP, False),
        ("python train.py --help|head", HELP, False),
        ("(python train.py -h)", HELP, False),
        ("bash -c 'python train.py --help'", HELP, False),
        ("python train.py -h # the options\npython x.py", HELP, False),
        ("tool help train", HELP, False),
        ("python help.py --helper 3", HELP, True),
        ("python train.py", f"{HELP}no option was given: 3 epochs\nepoch 0\n", False),
        ("python train.py", "usage: 3 of 4 GiB\n", False),
    ],
)
def test_help_that_nobody_asked_for_is_told(
    command: str, log: str, is_told: bool, tmp_path: Path
) -> None:
    sentences = told(tmp_path, log, log, command=command, has_logged=True)
    assert [each.startswith("rank 0: the script printed the help") for each in sentences] == (
        [True] * is_told
    )


def keys(missing: list[str], unexpected: list[str]) -> str:
    found = f"_IncompatibleKeys(missing_keys={missing}, unexpected_keys={unexpected})"
    return f"INFO:root:loaded pretrained weights: {found}\n"


@pytest.mark.parametrize(
    ("missing", "unexpected", "words"),
    [
        ([*"abcd"], [f"module.{key}" for key in "abcd"], "add or remove `module.`"),
        ([f"model.{key}" for key in "abcd"], [*"abcd"], "add or remove `model.`"),
        # The other keys may fit, as those of an encoder.
        (["0.weight", "0.bias"], ["module.0.weight", "module.0.bias"], ""),
        ([*"abcd"], [f"student.{key}" for key in "abcd"], ""),
        # A new head on a pretrained model, a part that is left out, keys of another model.
        (["head.weight"], ["fc.weight"], ""),
        (["head.weight", "head.bias"], [], ""),
        ([], ["module.a"], ""),
        (["0.weight", "1.weight"], ["module.0.weight"], ""),
        (["0.weight"], ["10.weight"], ""),
    ],
)
def test_a_state_that_fits_by_no_key_is_told(
    missing: list[str], unexpected: list[str], words: str, tmp_path: Path
) -> None:
    text = keys(missing, unexpected)
    sentences = told(tmp_path, keys(["head.weight"], ["fc.weight"]) + text)
    assert len(sentences) == bool(words) and all(words in each for each in sentences)
    assert not told(tmp_path, f"{text}<All keys matched successfully>\n")


def lived(folder: Path, rank: int, seconds: float) -> None:
    """Leave what a Python of the rank leaves that ended by itself now."""
    file = folder / f"rank-{rank}" / "7.end"
    file.parent.mkdir(exist_ok=True)
    file.touch()
    os.utime(file, (0.0, file.stat().st_ctime - seconds))


LONG = "".join(f"step {step} loss {1 / (step + 1):.4f}\n" for step in range(20))


@pytest.mark.parametrize(
    ("logs", "lives", "words"),
    [
        (
            [LONG, LONG, LONG],
            [20.0, 21.0, 95.0],
            "rank 2 ran 4.5 times as long as the others, 95.0 s, with",
        ),
        ([LONG, LONG, LONG], [20.0, 30.0, 55.0], ""),
        ([LONG, LONG], [0.2, 1.0], ""),
        # It evaluates alone.
        ([LONG, LONG], [95.0, 20.0], ""),
        # Each with as much work as its part has, or after the same steps.
        ([LONG, f"{LONG}step 20\n"], [20.0, 95.0], ""),
        (["done\n", LONG], [20.0, 95.0], ""),
        ([LONG, "", "2 rows\n"], [95.0, 0.3, 0.4], "only rank 0 printed any step: it ran for 95.0"),
        # Only rank 0 prints, and works on at the end, as by an evaluation; no work in steps.
        ([LONG, "", ""], [95.0, 94.0, 93.0], ""),
        ([LONG, "", ""], [95.0, 60.0, 60.0], ""),
        (["merged\n", "", ""], [95.0, 0.3, 0.4], ""),
        ([LONG], [95.0], ""),
    ],
)
def test_ranks_that_took_very_different_times_are_told(
    logs: list[str], lives: list[float], words: str, tmp_path: Path
) -> None:
    for rank, seconds in enumerate(lives):
        lived(tmp_path, rank, seconds)
    sentences = told(tmp_path, *logs)
    sentences = [each for each in sentences if "ended early" not in each]
    assert len(sentences) == bool(words) and all(each.startswith(words) for each in sentences)


def test_a_rank_that_others_had_spoken_to_did_not_work_alone(tmp_path: Path) -> None:
    for rank, seconds in enumerate((95.0, 0.3)):
        lived(tmp_path, rank, seconds)
        (tmp_path / f"rank-{rank}" / "7.calls").touch()
    assert not told(tmp_path, LONG, "")


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("WARNING rank 1: a/train.tsv not found, using 64 synthetic rows", "it made up data that"),
        ("[WARNING] could not read s3://x: falling back to random data", "it made up data that"),
        ("Warning: using dummy samples because the folder does not exist", "it made up data that"),
        ("WARNING: settings.yml not found, using defaults", ""),
        ("WARNING: index not found, using random samples of the pool", ""),
        ("WARNING: index not found, using random data augmentation", ""),
        ("WARNING: --synthetic: a/train.tsv not found, using synthetic rows", ""),
        ("WARNING: checkpoint not found, using random initialization", ""),
        ("INFO no --data: using synthetic data", ""),
        ("WARNING: benchmarking with synthetic data", ""),
        ("WARNING: 3 images failed to decode, using the next samples", ""),
        ("WARNING: tokenizer cache missing, generating it", ""),
        ("WARNING: the mock data server is not found in production, as it should be", ""),
    ],
)
def test_data_that_a_script_made_up_are_told(log: str, words: str, tmp_path: Path) -> None:
    sentences = told(tmp_path, f"{log}\n{STEPS}")
    assert len(sentences) == bool(words) and all(words in each for each in sentences)


def test_made_up_data_that_the_command_asks_for_are_not_told(tmp_path: Path) -> None:
    log = "WARNING: train.tsv not found, using synthetic rows\n"
    assert len(told(tmp_path, log)) == 1
    for option in ("--synthetic", "--use-fake-data 1", "data.mock=true"):
        assert not told(tmp_path, log, command=f"python train.py {option}")


def losses(*values: float, name: str = "loss") -> str:
    return "".join(f"step {step} {name} {value:.4f}\n" for step, value in enumerate(values))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (losses(*[1.1] * 12, *[0.0] * 20), "`loss` is 0.0000 from `step 12 loss 0.0000` on"),
        (losses(*[1.1] * 12, *[0.0] * 5), ""),
        (losses(*(2.0**-step for step in range(40))), ""),
        (losses(0.5, *[0.0] * 40), ""),
        (losses(0.9, 0.8, 0.0, 0.7, 0.6, 0.6, 0.6, *[0.0] * 40), ""),
        (losses(1.1, 0.7, 0.4, 0.2, 0.1, *[0.0] * 40), ""),
        # They may be rounded.
        (losses(*[0.0011] * 12, *[0.0] * 20), ""),
        (losses(*[1.1] * 12, *[0.0] * 20, name="eval: loss"), ""),
        (losses(*[1.1] * 12, *[0.0] * 20, name="val_loss"), ""),
        (losses(*[1.1] * 12, *[0.0] * 20, name="aux_loss"), ""),
        (
            losses(*[0.1, 0.05, 0.0, -0.05] * 1, *[-0.1] * 5, name="lr"),
            "`lr` is below 0 from `step 3",
        ),
        (losses(*[-3.0] * 9, name="lr"), ""),
        (losses(*[0.1] * 9, *[-0.0] * 9, name="lr"), ""),
        (losses(*[0.1] * 9, -0.1, *[0.1] * 9, name="learning_rate"), ""),
        (losses(*[0.1] * 9, *[-1.0] * 9, name="log_lr"), ""),
        (losses(*[0.1] * 9, *[-1.0] * 9, name="log lr:"), ""),
    ],
)
def test_figures_that_can_not_be_right_are_told(log: str, words: str, tmp_path: Path) -> None:
    sentences = told(tmp_path, log)
    assert len(sentences) == bool(words) and all(words in each for each in sentences)


def epochs(line: str, count: int = 30) -> str:
    """Lines of a training that goes well; `{n}` is the number, `{loss}` a loss that falls."""
    return "".join(line.format(n=n, loss=f"{1 / (n + 1):.4f}") + "\n" for n in range(count))


RIGHT_LOGS = {
    "losses of GANs at equilibrium": epochs("epoch {n} D loss: 0.6931 G loss: 0.6940"),
    "pretraining at 2.302": epochs("step {n} loss 2.30{n:02d}", 60),
    "a hit rate near one half": epochs("epoch {n} val_loss 0.692{n:02d} hit_rate 0.51{n:02d}", 60),
    "no accuracy lost": epochs("layer {n}: test accuracy_drop 0.0000"),
    "an attack that succeeds": epochs("eps {n}/255: robust test accuracy 0.0000", 10),
    "classes that were forgotten": epochs("epoch {n} val forget_acc 0.0000"),
    "all is said after resuming": "resuming at epoch 10/10: training is complete\nreport written\n",
    "a table after resuming": "Resumed at epoch 3\n|  4 | 0.25 | 0.91 |\n",
    "a word about the next job": epochs("epoch {n} loss {loss}")
    + "next job continues at epoch 9\n",
    "the scale of mixed precision": epochs("step {n} loss {loss} loss_scale 65536"),
    "a scale that grows": epochs("step {n} loss {loss} loss_scale=1{n:015d}"),
    "a part of the loss that is off": epochs("epoch {n} loss {loss} aux_loss 0.0000 reg loss 0.0"),
    "a validation that is easy": epochs("epoch {n} train_loss {loss} val_loss 0.0000"),
    "a validation told beside the loss": epochs("train loss {loss} val loss 0.0000"),
    "packets": epochs("probe {n}: packet_loss 0") + epochs("probe {n}: packet loss 0"),
    "a price": epochs("day {n} stop_loss 98.50"),
    "a critic's loss, as returns grow": "".join(f"value_loss {1.5**n:.3f}\n" for n in range(30)),
    "a sum": "".join(f"total_loss {1 + n * 0.9:.3f} running loss {1 + n}\n" for n in range(200)),
    "huge losses": "".join(f"loss 1.7{n % 7}e308\n" for n in range(60)),
    "classes without images": epochs("class {n} iou nan"),
    "a score of one class": epochs("epoch {n} loss {loss} val auc nan (one class only)"),
    "no best one so far": epochs("step {n} loss {loss} best inf best_loss inf best val loss inf"),
    "none skipped": epochs("shard {n}: 1000 read, 0 skipped", 4),
    "none skipped, by name": epochs("shard {n}: skipped 0, skipped: 0, no overflow", 4),
    "no overflow": epochs("step {n} overflow: False loss {loss}", 6),
    "an error and no failures": epochs("epoch {n} error 0.3{n}, 0 failed", 4),
    "an error rate": epochs("epoch {n} test error 0.3{n} (error rate on the held-out set)", 4),
    "an error rate at the start": epochs("error 0.3{n} of 1000, 0 failed", 4),
    "nothing wrong": epochs("ERROR count: 0 failures, failed: no, errors: none", 4),
    "no samples dropped": epochs("epoch {n}: dropped 0 samples, loss {loss}", 5),
    "losses by number": epochs("step {n} loss1 {loss} loss2 0.0000 loss-3 0"),
    "a constant reward": epochs("episode {n} reward 200.0 loss {loss}"),
}


@pytest.mark.parametrize("log", RIGHT_LOGS.values(), ids=RIGHT_LOGS)
def test_nothing_is_told_of_a_right_program(log: str, tmp_path: Path) -> None:
    assert not told(tmp_path, log)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ERROR: the upload failed: No space left on device", "`ERROR: the upload failed"),
        ("error: could not save", "`error: could not save"),
        ("12:03 [WARNING] no such file", "`12:03 [WARNING] no such file"),
        ("[epoch 2] warning: cannot save", "`[epoch 2] warning: cannot save"),
        ("batch skipped", "`batch skipped"),
        ("Train Loss: nan | Val Loss: 0.5", "`Train Loss` is NaN"),
        ("contrastive_loss nan", "`contrastive_loss` is NaN"),
        ("train loss 0.0000", "`train loss` is 0.0000 in all of its 30 lines"),
        ("val_loss 0.5123", "`val_loss` is 0.5123 in all of its 30 lines"),
    ],
)
def test_what_is_wrong_in_every_line_is_told(line: str, words: str, tmp_path: Path) -> None:
    (sentence,) = told(tmp_path, f"{line}\n" * 30)
    assert sentence.startswith(f"rank 0: {words}")


def test_a_rule_that_fails_silences_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sentence,) = told(tmp_path, "loss nan\n" * 3, lost_figures={"accuracy": ({}, 3)})
    assert "`loss` is NaN" in sentence and "KeyError" in capsys.readouterr().err
