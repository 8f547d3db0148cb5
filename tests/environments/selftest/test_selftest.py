"""The self-test tells what it saw, what failed and where a label is wrong."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import venv
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from torchyard.environments.build import builder
from torchyard.environments.names import components
from torchyard.environments.names.components import (
    Component,
    EnvironmentComponent,
    StepResult,
    TestRun,
)
from torchyard.environments.selftest import __main__ as selftest
from torchyard.environments.selftest import running

PYTHON = Path(sys.executable)


def component_of(step: str) -> EnvironmentComponent:
    return EnvironmentComponent(
        Component(step, (step,), step), "installed", step, version("pytest")
    )


@pytest.mark.slow
def test_a_step_tells_what_it_saw() -> None:
    result = running.run_step(PYTHON, component_of("pytest"), os.environ)
    assert result.result == "a file of two tests: 1 failed, 1 passed, as written", result.error
    assert result.seconds > 0 and not result.error


def test_a_step_that_fails_tells_why() -> None:
    result = running.run_step(PYTHON, component_of("ort_moe"), os.environ)
    assert result.result == "" and "No module named" in result.error


def test_an_error_holds_no_path_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = f'File "{PYTHON.parents[1]}/lib/torch/__init__.py", line 2\nRuntimeError: no driver'
    ended = subprocess.CompletedProcess([], 1, "", stderr)
    monkeypatch.setattr(running, "_run", lambda *arguments: ended)
    result = running.run_step(PYTHON, component_of("pytest"), {})
    assert result.error == 'File "lib/torch/__init__.py", line 2 RuntimeError: no driver'


def test_an_environment_is_read_from_its_disk() -> None:
    on_disk = running.distributions(PYTHON, os.environ)
    assert on_disk["pytest"]["version"] == version("pytest")
    assert {"pytest", "_pytest"} <= set(on_disk["pytest"]["modules"])
    assert on_disk["pytest"]["missing"] == []


def test_modules_that_are_not_there_are_found() -> None:
    on_disk = {
        "six": {"version": "1.17.0", "modules": ["six"], "missing": []},
        "extra": {"version": "1.0", "modules": ["extra"], "missing": ["extra"]},
    }
    assert running.missing_modules(on_disk) == [
        "extra has modules that Python does not find: extra"
    ]


def test_an_environment_answers_about_itself() -> None:
    variables = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1"}
    answer = running.answer(PYTHON, ["CUDA_LAUNCH_BLOCKING", "TF_USE_LEGACY_KERAS"], variables)
    assert answer.packages["pytest"] == version("pytest")
    assert answer.python == platform.python_version()
    assert answer.machine == platform.machine().lower()
    assert answer.variables == {"CUDA_LAUNCH_BLOCKING": "1"}


def _install(folder: Path, name: str, requires: str, files: dict[str, str]) -> None:
    """A distribution on disk, as pip leaves it."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"]
    about.joinpath("METADATA").write_text("".join([*lines, requires]), encoding="utf-8")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    record = "".join(f"{path},,\n" for path in files)
    about.joinpath("RECORD").write_text(record, encoding="utf-8")


def test_what_a_package_imports_of_another_and_does_not_find_is_a_fault(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    packages = builder.site_packages(environment)
    _install(packages, "pool", "", {"pool/__init__.py": "QUEUE = 1\n", "pool/sub.py": ""})
    store = {
        "store/__init__.py": "",
        "store/right.py": "import pool.sub\nfrom pool import QUEUE, sub\nfrom pool import *\n",
        "store/wrong.py": "from pool import QUEUE, FALLBACK\n",
        "store/gone.py": "import pool.gone\n",
        "store/guarded.py": "try:\n    from pool import OLD\nexcept ImportError:\n    pass\n",
        "store/tests/test_it.py": "from pool import UNKNOWN\n",
        "store/testclient.py": "from pool import UNKNOWN_TO_TESTS\n",
        "store/macos_keys.py": "from pool import OF_MACOS\n",
        "store/old.py": "print 'Python 2'\nfrom pool import OLDER\n",
    }
    _install(packages, "store", "Requires-Dist: Pool>=1; extra == 'db'\n", store)
    _install(packages, "other", "", {"other.py": "from pool import NOT_NAMED\n"})
    count, faults = running.pairs(environment / "bin" / "python", os.environ)
    assert (count, sorted(faults)) == (
        1,
        [
            "store can't use pool: store/gone.py: ModuleNotFoundError: No module named 'pool.gone'",
            "store can't use pool: store/wrong.py: cannot import name 'FALLBACK' from 'pool'",
        ],
    )


def test_faults_are_recorded(tmp_path: Path) -> None:
    file = tmp_path / "tests.json"
    faulty = replace(run("CPU"), pairs=301, faults=("mlflow can't use sqlalchemy: …",))
    selftest.record(file, faulty)
    assert components.read_runs(file) == (faulty,)


def run(hardware: str, release: str = "1", loss: str = "0.1") -> TestRun:
    steps = {"PyTorch": StepResult("2.13.0", 1.5, loss)}
    return TestRun(release, "2026-11-25", hardware, "3.11.7", 2, 3, (), steps)


def test_a_run_replaces_one_on_the_same_hardware_and_those_of_past_versions(tmp_path: Path) -> None:
    file = tmp_path / "tests.json"
    selftest.record(file, run("CPU"))
    selftest.record(file, run("GPU: H100"))
    selftest.record(file, run("CPU", loss="0.2"))
    assert components.read_runs(file) == (run("CPU", loss="0.2"), run("GPU: H100"))
    selftest.record(file, run("CPU", "2"))
    assert components.read_runs(file) == (run("CPU", "2"),)
