"""Save in this process, without a writer of its own: what tests of single modules begin with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from torchyard.train.checkpoint import CheckpointError, Retention
from torchyard.train.checkpoint.commits import Commit, SaveRequest
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.checkpoint.states import PlannedState


def commit_of(
    folder: Path, state: Mapping[str, Any], step: int = 1, rank: int = 0, ranks: int = 1,
    log: Callable[[str], None] = lambda text: None, **changed: Any,
) -> Commit:  # fmt: skip
    planned = PlannedState(state, rank == 0)
    values: dict[str, Any] = {
        "folder": folder, "step": step, "session": "s", "rank": rank, "world_size": ranks,
        "timeout_s": 20.0, "saved_at": 1_700_000_000_000, "metric": None,
        "retention": Retention(), "plan": planned.plan,
        "copied": tuple(range(len(planned.plan.items))),
    }  # fmt: skip
    return Commit(SaveRequest(**{**values, **changed}), planned.read, log)


def save(folder: Path, state: Mapping[str, Any], step: int = 1, **changed: Any) -> CheckpointInfo:
    return commit_of(folder, state, step, **changed).run()


def run_together(*commits: Commit) -> list[CheckpointInfo | CheckpointError]:
    """Each in a thread, as if it were another rank's writer."""
    answers: list[CheckpointInfo | CheckpointError] = [CheckpointError("none")] * len(commits)

    def run(number: int) -> None:
        try:
            answers[number] = commits[number].run()
        except CheckpointError as error:
            answers[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(commits))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def weights() -> dict[str, Any]:
    return {
        "model": {"weight": torch.arange(12.0).reshape(3, 4), "bias": torch.ones(3)},
        "empty": torch.empty(0, 2, dtype=torch.bfloat16),
        "epoch": 4,
    }
