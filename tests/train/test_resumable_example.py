"""The resumable example, killed at random moments, ends as one that nobody disturbed.

TORCHYARD_EXAMPLE_KILLS=20 for the long form, TORCHYARD_SEED for other moments.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from torchyard.train.checkpoint import locks
from train import training_ranks
from train.training_ranks import RankServer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
KILLS = int(os.environ.get("TORCHYARD_EXAMPLE_KILLS", "2"))
SEED = int(os.environ.get("TORCHYARD_SEED", "20"))
RANKS = 2

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400 + 100 * KILLS)]


@dataclass(frozen=True)
class Result:
    """What a training printed last, and every point of its metrics by name and step."""

    accuracy: float
    weights: str
    points: dict[tuple[str, int], float]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RankServer]:
    server = RankServer(tmp_path / "log")
    yield server
    server.close()


def test_digits_killed_at_random_moments_end_as_undisturbed_ones(
    server: RankServer, tmp_path: Path
) -> None:
    if importlib.util.find_spec("sklearn") is None:
        assert os.environ.get("TORCHYARD_TEST_SERVICES") != "required"
        pytest.skip("scikit-learn is not installed: `make test-train` installs it")
    result = _killed_as_undisturbed(server, tmp_path, "--epochs=6", "--save-every=5")
    assert result.accuracy > 0.85


def test_fashion_mnist_killed_at_random_moments_ends_as_undisturbed(
    server: RankServer, tmp_path: Path
) -> None:
    example = shutil.copytree(EXAMPLES / "fashion_mnist", tmp_path / "example")
    done = subprocess.run([example / "get_data.sh"], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(done.stderr)  # Debian's packages can't be reached from here
    result = _killed_as_undisturbed(
        server, tmp_path, f"--data={example / 'data'}", "--train-images=3000", "--epochs=2",
        "--save-every=5",
    )  # fmt: skip
    assert result.accuracy > 0.65


def _killed_as_undisturbed(server: RankServer, folder: Path, *arguments: str) -> Result:
    """Train twice, the second time with kills; returns what both have come to."""
    moments = random.Random(SEED)
    undisturbed, killed = folder / "undisturbed", folder / "killed"
    undisturbed.mkdir()
    killed.mkdir()
    _, notes = _start(server, undisturbed, 0, arguments)
    _wait_until(lambda: _is_done(notes), notes)
    steps = _last_step(undisturbed)
    # One that has been passed already comes while the ranks start, or soon after.
    targets = sorted(moments.randrange(steps * 9 // 10) for _ in range(KILLS))
    for number, target in enumerate(targets):
        group, notes = _start(server, killed, number, arguments)
        _wait_until((notes / "pids").exists, notes)
        _wait_until(partial(_has_logged, killed, target), notes)
        time.sleep(moments.uniform(0, 0.5))
        assert not _is_done(notes), "it was to be killed once more"
        pids = json.loads((notes / "pids").read_text())
        os.kill(pids[moments.randrange(RANKS)], signal.SIGKILL)
        os.killpg(group, signal.SIGKILL)
        for rank in range(RANKS):
            os.close(locks.take(killed / "outputs/checkpoints", rank, 200))
        print(f"kill {number + 1}, at step {_last_step(killed)}", flush=True)
    _, last_notes = _start(server, killed, KILLS, arguments)
    _wait_until(lambda: _is_done(last_notes), last_notes)
    expected, result = (
        _result(undisturbed, notes=undisturbed / "run-0"),
        _result(killed, last_notes),
    )
    assert result == expected
    print(f"{result.accuracy}, {result.weights[:12]}, {len(result.points)} points: as undisturbed")
    return result


def _start(
    server: RankServer, folder: Path, number: int, arguments: tuple[str, ...]
) -> tuple[int, Path]:
    notes = folder / f"run-{number}"
    notes.mkdir()
    script = str(EXAMPLES / "resumable/src/train.py")
    group = server.start(
        "train.rank_functions:run_script", RANKS, notes, script, str(folder), *arguments
    )
    return group, notes


def _is_done(notes: Path) -> bool:
    return all((notes / f"{rank}.json").exists() for rank in range(RANKS))


def _result(folder: Path, notes: Path) -> Result:
    lines = (notes / "log").read_text().splitlines()
    last = dict(line.rsplit(" ", 1) for line in lines if " " in line)
    return Result(float(last["test accuracy"]), last["weights"], _points(folder))


def _points(folder: Path) -> dict[tuple[str, int], float]:
    """What every run has logged; a step that is done again must log the same."""
    points: dict[tuple[str, int], float] = {}
    if not (folder / "metrics.jsonl").exists():
        return points
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        step, metrics = json.loads(line)
        for name, value in metrics.items():
            assert points.setdefault((name, step), value) == value, (name, step)
    return points


def _has_logged(folder: Path, step: int) -> bool:
    return _last_step(folder) >= step


def _last_step(folder: Path) -> int:
    return max((step for _, step in _points(folder)), default=0)


def _wait_until(condition: Callable[[], bool], notes: Path) -> None:
    training_ranks.wait_until(condition, notes, timeout_s=380)
