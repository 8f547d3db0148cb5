"""Ranks and writers that are killed at random moments while they save.

TORCHYARD_CHECKPOINT_KILLS=300 for the long form, TORCHYARD_SEED for other moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from torchyard.train.checkpoint import folders, loading, locks
from train import training_ranks
from train.rank_functions import check_content

KILLS = int(os.environ.get("TORCHYARD_CHECKPOINT_KILLS", "10"))
SEED = int(os.environ.get("TORCHYARD_SEED", "20"))
RANKS = 2
# Those of one run each; after a writer the training goes on, so another kill ends the run.
RUNS = (("rank",), ("writer", "all"), ("worker",))

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120 + 90 * KILLS)]


def test_no_kill_leaves_half_a_checkpoint_and_the_newest_durable_one_is_found(
    tmp_path: Path,
) -> None:
    moments = random.Random(SEED)
    folder = tmp_path / "checkpoints"
    durable = kills = number = 0
    server = training_ranks.RankServer(tmp_path / "log")
    try:
        while kills < KILLS:
            notes = tmp_path / f"run-{number}"
            notes.mkdir()
            kinds = RUNS[number % len(RUNS)]
            durable = _run(server, folder, notes, kinds, moments, durable)
            number += 1
            kills += len(kinds)
            print(f"{kills} kills: {' and '.join(kinds)}; step {durable} is durable", flush=True)
    finally:
        server.close()


def _run(
    server: training_ranks.RankServer,
    folder: Path,
    notes: Path,
    kinds: tuple[str, ...],
    moments: random.Random,
    durable: int,
) -> int:
    """Train and kill; returns the newest step that a rank knew to be durable."""
    # A writer that replaces another one first imports torch, on a busy machine for long.
    timeout_s = 100 if "writer" in kinds else 3
    group = server.start(
        "train.rank_functions:killed_while_saving", RANKS, notes,
        str(folder), str(notes), timeout_s,
    )  # fmt: skip
    try:
        training_ranks.wait_until(
            lambda: all(_note(notes, f"durable-{rank}") for rank in range(RANKS)), notes
        )
        assert _note(notes, "resumed-0") >= durable
        for kind in kinds:
            time.sleep(moments.uniform(0, 0.3))
            step = _note(notes, "durable-0")
            _kill(kind, group, moments.randrange(RANKS), notes)
            if kind == "writer":
                # The writer is replaced, and the training goes on.
                training_ranks.wait_until(partial(_is_durable, notes, step + 4), notes)
    finally:
        os.killpg(group, signal.SIGKILL)
    _wait_for_writers(folder)
    durable = max(durable, *(_note(notes, f"durable-{rank}") for rank in range(RANKS)))
    _check_all(folder, durable)
    return durable


def _kill(kind: str, group: int, rank: int, notes: Path) -> None:
    """`worker`: what supervises the ranks is killed, and they with it, but not their writers."""
    ranks = json.loads((notes / "pids").read_text())
    writers = [_note(notes, f"writer-{number}") for number in range(RANKS)]
    assert all(writers), "each has saved, and said which process writes"
    if kind == "rank":
        os.kill(ranks[rank], signal.SIGKILL)
        time.sleep(0.2)
    elif kind == "writer":
        os.kill(writers[rank], signal.SIGKILL)
    elif kind == "worker":
        os.killpg(group, signal.SIGKILL)
    else:
        for pid in (*ranks, *writers):
            os.kill(pid, signal.SIGKILL)


def _check_all(folder: Path, durable: int) -> None:
    """Every checkpoint that is listed is whole, and none that was durable has vanished."""
    complete = folders.checkpoints(folder)
    assert complete and max(complete) >= durable
    for step, info in complete.items():
        folders.verify(info)
        check_content(step, loading.load_all(info))


def _wait_for_writers(folder: Path) -> None:
    """Those that were not killed write what was handed over, and end."""
    for rank in range(RANKS):
        os.close(locks.take(folder, rank, 200))


def _is_durable(notes: Path, step: int) -> bool:
    return _note(notes, "durable-0") >= step


def _note(notes: Path, name: str) -> int:
    try:
        return int((notes / name).read_text())
    except FileNotFoundError:
        return 0
