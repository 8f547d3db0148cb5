"""What SDK v1's client holds when its Python is killed; a client like it, as tests have none."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import other_pythons
from torchyard.worker.in_rank import sdk_v1_exit, sdk_v1_unsent
from worker.bench import Bench

QUEUE = """
class BatchTaskQueue:
    def __init__(self, work_func, interval=1):
        self._work_func, self._items = work_func, []

    def add_item(self, item):
        self._items.append(item)

    def send(self, count):
        batch, self._items = self._items[:count], self._items[count:]
        self._work_func(batch)
"""
SCRIPT = """
import os, sys
import _torchyard_azure_exit
_torchyard_azure_exit.expect(os.environ["TORCHYARD_ERRORS"])
from azureml._common.async_utils.batch_task_queue import BatchTaskQueue

class Some:
    def __init__(self, **fields):
        vars(self).update(fields)

class Client:
    _run_id = "job-1"
    def post(self, items):
        if failing:
            raise OSError("away")

def log(value, step=None):
    one = Some(metric_id="id-%s" % value, created_utc="2026-11-21T10:00:00.%06dZ" % value,
               step=step, data={"loss": float(value)})
    kind = Some(ux_metric_type="azureml.v1.scalar")
    queue.add_item(Some(name="loss", columns={"loss": "double"}, value=[one], properties=kind))

failing = False
queue = BatchTaskQueue(Client().post)
"""


@pytest.fixture(params=[other_pythons.IN_RANK, other_pythons.CURRENT])
def python(request: pytest.FixtureRequest) -> str:
    return other_pythons.python(request.param)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    inner = folder / "azureml" / "_common" / "async_utils"
    inner.mkdir(parents=True)
    (inner / "batch_task_queue.py").write_text(QUEUE)
    here = Path(sdk_v1_exit.__file__).parent
    for name, source in (("azure_exit", "sdk_v1_exit"), ("azure_unsent", "sdk_v1_unsent")):
        shutil.copy(here / f"{source}.py", folder / f"_torchyard_{name}.py")
    return folder


def run(python: str, packages: Path, end: str) -> tuple[int, list[float]]:
    """Exit code of the script, and the values that were left."""
    errors = packages.parent / "errors"
    (errors / "rank-0").mkdir(parents=True)
    words = [python, "-c", SCRIPT + end]
    variables = {"PYTHONPATH": str(packages), "TORCHYARD_ERRORS": str(errors / "rank-0")}
    done = subprocess.run(words, env=variables, timeout=60, check=False)
    unsent = list(sdk_v1_unsent.unsent(errors))
    assert all(run == "job-1" for run, _ in unsent)
    return done.returncode, [metric["value"][0]["data"]["loss"] for _, metric in unsent]


@pytest.mark.parametrize(
    ("end", "left"),
    [
        ("for n in range(5): log(n)\nos.kill(os.getpid(), 9)", [0, 1, 2, 3, 4]),
        ("for n in range(5): log(n)\nqueue.send(3); log(9)\nos.kill(os.getpid(), 9)", [3, 4, 9]),
        ("for n in range(5): log(n)\nqueue.send(5)\nos.kill(os.getpid(), 9)", []),
        ("log(1); queue.send(1); log(2)\nos.kill(os.getpid(), 9)", [2]),
        # Python gives the numbers of its things again.
        ("for n in range(9): log(2 * n); log(2 * n + 1); queue.send(1)\nos.kill(os.getpid(), 9)",
         [*range(9, 18)]),
    ],
)  # fmt: skip
def test_what_was_not_sent_is_left(python: str, packages: Path, end: str, left: list[int]) -> None:
    assert run(python, packages, end) == (-signal.SIGKILL, left)


def test_a_child_has_copies_of_its_own(python: str, packages: Path) -> None:
    end = "log(1)\nif os.fork() == 0:\n    log(2); os._exit(0)\nos.wait(); queue.send(1)"
    assert run(python, packages, end) == (0, [2])


def test_a_batch_that_failed_is_left(python: str, packages: Path) -> None:
    end = "log(1)\nfailing = True\ntry:\n    queue.send(1)\nexcept OSError:\n    os._exit(3)"
    assert run(python, packages, end) == (3, [1])


def test_copies_take_little_space(python: str, packages: Path) -> None:
    end = """
from _torchyard_azure_unsent import _LARGE_BYTES
log(0)
for n in range(1, 12000):
    log(n)
    vars(queue)["_items"], kept = queue._items[1:], queue._items[:1]
    queue.send(1)
    queue._items = kept + queue._items
    sizes = [entry.stat().st_size for entry in os.scandir(os.environ["TORCHYARD_ERRORS"])]
    assert sum(sizes) < 3 * _LARGE_BYTES, sizes
os.kill(os.getpid(), 9)
"""
    assert run(python, packages, end) == (-signal.SIGKILL, [0])


def test_a_line_that_is_cut_off_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "rank-0").mkdir()
    file = tmp_path / "rank-0" / f"1{sdk_v1_unsent.ENDING}"
    line = json.dumps({"id": 1, "run": "r", "metric": {"name": "m"}})
    file.write_text(f'[1]\n{{"id": 7, "ru\n{line}\n{{"sent": [7, 8]}}\n{line[:20]}')
    assert list(sdk_v1_unsent.unsent(tmp_path)) == [("r", {"name": "m"})]


def test_a_node_delivers_it(bench: Bench) -> None:
    value = {"metricId": "i", "createdUtc": "2026-11-21T10:00:00.5Z", "data": {"loss": 0.5}}
    metric: dict[str, Any] = {"name": "loss", "columns": {"loss": "double"}, "value": [value]}
    line = json.dumps({"id": 1, "run": "job-1", "metric": metric})
    bad = json.dumps({"id": 2, "run": "job-1", "metric": {"name": "loss", "value": 3}})
    script = (
        f"printf '%s\\n' '{bad}' '{line}' > $TORCHYARD_ERRORS/7{sdk_v1_unsent.ENDING}; kill -9 $$"
    )
    bench.run(bench.plan(script))
    assert bench.exit()["exit_code"] == 137
    (record,) = bench.server.history[0]
    assert (record["kind"], record["key"], record["value"]) == ("metric", "loss", 0.5)
