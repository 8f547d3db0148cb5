"""Examples whose ranks are killed at random moments end as those that nobody disturbed.

TORCHYARD_EXAMPLE_KILLS=20 for the long form, TORCHYARD_SEED for other moments.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
import urllib.error
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import ENDED, REPOSITORY, Yard, wait_until

KILLS = int(os.environ.get("TORCHYARD_EXAMPLE_KILLS", "2"))
SEED = int(os.environ.get("TORCHYARD_SEED", "20"))

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.timeout(900 + 120 * KILLS),
    pytest.mark.usefixtures("resumable_environment"),
]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy, for the data that it downloads."""
    shutil.copytree(REPOSITORY / "examples/fashion_mnist", tmp_path / "fashion_mnist")
    return shutil.copytree(REPOSITORY / "examples/resumable", tmp_path / "resumable")


def test_digits_killed_at_random_moments_end_as_undisturbed_ones(yard: Yard, example: Path) -> None:
    assert _killed_as_undisturbed(yard, example / "job.yml", "digits", epochs=8 + 3 * KILLS) > 0.95


def test_fashion_mnist_killed_at_random_moments_ends_as_undisturbed(
    yard: Yard, example: Path
) -> None:
    done = subprocess.run(
        [example.parent / "fashion_mnist/get_data.sh"], capture_output=True, text=True
    )
    if done.returncode != 0 and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert (
        _killed_as_undisturbed(
            yard, example / "fashion_mnist.yml", "fashion", epochs=2 + KILLS // 4
        )
        > 0.8
    )


def _killed_as_undisturbed(yard: Yard, file: Path, name: str, epochs: int) -> float:
    """Run the example twice, killing the second one's ranks; returns the accuracy of both."""
    moments = random.Random(SEED)
    undisturbed, killed = f"{name}-undisturbed", f"{name}-killed"
    _create(yard, file, undisturbed, epochs)
    yard.completed(undisturbed, timeout_s=600)
    steps = _last_step(yard, undisturbed)
    _create(yard, file, killed, epochs)
    # One that has been passed already comes while the ranks start.
    targets = sorted(moments.randrange(steps * 9 // 10) for _ in range(KILLS))
    for number, target in enumerate(targets, start=1):
        pid = _wait_for_ranks(yard, killed, number)[moments.randrange(2)]
        wait_until(partial(_has_logged, yard, killed, target), 400, f"step {target}")
        time.sleep(moments.uniform(0, 0.5))
        os.kill(pid, signal.SIGKILL)
        print(f"{name}: kill {number}", flush=True)
    yard.completed(killed, timeout_s=600)
    assert _attempts(yard, killed) == KILLS + 1
    results = [_result(yard, job) for job in (undisturbed, killed)]
    assert results[0] == results[1]
    print(f"{name}: {results[1][:2]} and {len(results[1][2])} points of loss after {KILLS} kills")
    return results[0][0]


def _result(yard: Yard, name: str) -> tuple[float, str, list[tuple[int, float]], list[Any]]:
    """Accuracy, weights, and both series."""
    lines = dict(
        line.rsplit(" ", 1) for line in _log(yard, name).decode().splitlines() if " " in line
    )
    series = []
    for key in ("loss", "accuracy"):
        points = yard.get(f"jobs/{name}/metrics/history?key={key}")["points"]
        series.append(sorted((step, value) for step, _, value in points))
    assert len({step for step, _ in series[0]}) == len(series[0]) > 10
    return float(lines["test accuracy"]), lines["weights"], series[0], series[1]


def _has_logged(yard: Yard, name: str, step: int) -> bool:
    return _last_step(yard, name) >= step


def _last_step(yard: Yard, name: str) -> int:
    try:
        points = yard.get(f"jobs/{name}/metrics/history?key=loss")["points"]
    except urllib.error.HTTPError:
        return 0  # nothing is logged yet
    return max((step for step, _, _ in points), default=0)


def _log(yard: Yard, name: str) -> bytes:
    try:
        return yard.read(f"jobs/{name}/files/user_logs/std_log_process_0.txt")
    except urllib.error.HTTPError:
        return b""


def _attempts(yard: Yard, name: str) -> int:
    """How many, by the folders of those before the last one."""
    files = [file["path"] for file in yard.get(f"jobs/{name}/files")["value"]]
    before = {path.split("/")[0] for path in files if path.startswith("attempt-")}
    return len(before) + 1


def _create(yard: Yard, file: Path, name: str, epochs: int) -> None:
    values = {"name": name, "inputs.epochs": epochs, "torchyard.retry.max_attempts": KILLS + 2}
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    yard("job", "create", "-f", str(file), *words)


def _wait_for_ranks(yard: Yard, name: str, attempt: int) -> list[int]:
    """The pids of both ranks of an attempt, once their scripts have begun."""

    def have_begun() -> bool:
        job = yard.job(name)
        assert job["status"] not in ENDED, (job["status"], job["error"], yard.logs(name))
        return len(_ranks(name, attempt)) == 2

    wait_until(have_begun, 400, f"attempt {attempt} of {name} has begun")
    return _ranks(name, attempt)


def _ranks(name: str, attempt: int) -> list[int]:
    """The pids of the attempt's ranks: those of their scripts, not of writers."""
    marks = {
        f"TORCHYARD_JOB={name}".encode(), f"TORCHYARD_ATTEMPT_NUMBER={attempt}".encode()
    }  # fmt: skip
    pids = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and marks <= set(
                (folder / "environ").read_bytes().split(b"\0")
            ):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if b"python" in words[0] and b"train.py" in words[1:2]:
                    pids.append(int(folder.name))
    return sorted(pids)
