"""The second run that `.ci/run` gives to the few tests that failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest_once_more

_TOOL = Path(pytest_once_more.__file__)
_FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({number}))
def test_that_fails_once(number):
    seen = Path(__file__).with_name(f"seen-{{number}}")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")

def test_that_passes():
    with Path(__file__).with_name("passed").open("a") as file:
        file.write("x")
"""


def _run(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, str(_TOOL), "-q", *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    return ended.returncode, ended.stdout


def test_a_test_that_fails_once_is_run_again_alone_and_named(tmp_path: Path) -> None:
    code, output = _run(tmp_path, _FAILS_ONCE.format(number=1), "-n", "2")
    assert code == 0, output
    assert output.endswith(
        "== passed only when run once more:\n   test_it.py::test_that_fails_once[0]\n"
    )
    assert (tmp_path / "passed").read_text() == "x", "only what failed runs again"


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, output = _run(tmp_path, "def test_broken():\n    assert 1 == 2\n")
    assert (code, output.count("FAILED test_it.py::test_broken")) == (1, 2), output
    assert "passed only" not in output


def test_when_many_tests_fail_none_runs_again(tmp_path: Path) -> None:
    code, output = _run(tmp_path, _FAILS_ONCE.format(number=pytest_once_more.FEW + 1))
    assert code == 1 and "once more" not in output


def test_an_error_of_collection_is_not_run_again(tmp_path: Path) -> None:
    code, output = _run(tmp_path, "import nothing_of_that_name\n")
    assert code == 2 and "once more" not in output


def test_a_failing_teardown_is_run_again(tmp_path: Path) -> None:
    text = """
from pathlib import Path
import pytest

@pytest.fixture
def ended():
    yield
    seen = Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")

def test_it(ended):
    pass
"""
    code, output = _run(tmp_path, text)
    assert (code, "   test_it.py::test_it\n" in output) == (0, True), output
