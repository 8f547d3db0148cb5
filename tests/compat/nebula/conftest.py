"""The layer as a script imports it; without torch, nothing of it can be imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
SOURCE = REPOSITORY / "compat" / "nebulaml" / "src"
HAS_TORCH = importlib.util.find_spec("torch") is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    is_module = collection_path.suffix == ".py" and collection_path.name != "conftest.py"
    return True if is_module and not HAS_TORCH else None


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads the variables of a job that runs it, or writes into the checkout."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NEBULA_MEMORY_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZUREML_OUTPUT_DIRECTORY", str(tmp_path / "outputs"))
    monkeypatch.syspath_prepend(str(SOURCE))


@pytest.fixture
def fresh_nm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """nebulaml in this process, not yet initialized, with a writer of its own."""
    import nebulaml
    from nebulaml import checkpoints

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(checkpoints, "_process", None)
    yield nebulaml
    if checkpoints._process is not None:
        checkpoints._process.close()


@pytest.fixture(scope="session")
def writers() -> Iterator[dict[str, Any]]:
    """What `nm` leaves to the next test: the start of a writer takes seconds."""
    saved: dict[str, Any] = {}
    yield saved
    if "process" in saved:
        saved["process"].close()


@pytest.fixture
def nm(monkeypatch: pytest.MonkeyPatch, writers: dict[str, Any]) -> Iterator[Any]:
    """nebulaml in this process, as new except for its writer."""
    import nebulaml
    from nebulaml import checkpoints

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    process = writers.get("process")
    if process is not None:
        process._due_at, process._usual, process._commits = float("-inf"), 0, False
    monkeypatch.setattr(checkpoints, "_process", process)
    yield nebulaml
    if checkpoints._process is not None:
        checkpoints._process.flush()
        writers["process"] = checkpoints._process


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a script in a process of its own, with `STORE` and `rank` as its first lines say."""
    started: list[subprocess.Popen[str]] = []

    def run(script: str, python: str = sys.executable, **variables: str) -> subprocess.Popen[str]:
        file = tmp_path / f"script{len(started)}.py"
        file.write_text(
            "import nebulaml as nm, os, sys, time, torch\n"
            f"STORE = {str(tmp_path / 'store')!r}\n" + textwrap.dedent(script)
        )
        process = subprocess.Popen(
            [python, str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=tmp_path, start_new_session=True,
            env={
                **os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": os.pathsep.join((str(SOURCE), str(REPOSITORY / "src"))), **variables,
            },
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
