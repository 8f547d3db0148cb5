"""The second try of tools/run_suite.py, and the table of tools/run_suites.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import run_suite
import run_suites
from eventually import eventually
from run_suite import Record

TOOLS = Path(run_suite.__file__).parent

# Each run of a test that ends badly changes what the next one sees.
EVERY_SECOND_TIME = """
from pathlib import Path

def test_every_second_time():
    counter = Path(__file__).with_name("counter")
    runs = int(counter.read_text()) if counter.exists() else 0
    counter.write_text(str(runs + 1))
    assert runs % 2, "an even run"

def test_always_passes():
    pass
"""
NEVER = "def test_never():\n    assert False\n"


def git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose branch `main` has one test that fails every second time."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "test_old.py").write_text(EVERY_SECOND_TIME)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "test_old.py")
    git(folder, "commit", "-q", "-m", "Begin")
    git(folder, "switch", "-q", "-c", "branch")
    return folder


def run(checkout: Path, *arguments: str) -> tuple[int, str, Record]:
    environment = os.environ | {
        "SUITE": "planted",
        "CI_LOGS": str(checkout / "logs"),
        "CI_CALM_WAIT_S": "0",
    }
    environment.pop("PYTEST_XDIST_WORKER", None)
    process = subprocess.run(
        [sys.executable, str(TOOLS / "run_suite.py"), *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
    )
    record = Record(**json.loads((checkout / "logs" / "planted.json").read_text()))
    return process.returncode, process.stdout, record


def test_an_old_test_that_passes_at_its_second_try_is_reported_and_does_not_block(
    checkout: Path,
) -> None:
    code, output, record = run(checkout)
    assert code == 0
    message = "flaky: test_old.py::test_every_second_time: AssertionError: an even run"
    assert any(line.startswith(message) for line in output.splitlines())
    assert (record.passed, record.failed, len(record.flaky)) == (2, 0, 1)


def test_a_new_test_that_passes_at_its_second_try_blocks(checkout: Path) -> None:
    (checkout / "test_new.py").write_text(EVERY_SECOND_TIME)
    git(checkout, "add", "test_new.py")
    git(checkout, "commit", "-q", "-m", "Add a test")
    code, output, record = run(checkout, "test_new.py")
    assert code == 1
    assert "flaky:" not in output
    assert record.failures == ["test_new.py::test_every_second_time"]


def test_a_test_that_fails_twice_blocks(checkout: Path) -> None:
    (checkout / "test_never.py").write_text(NEVER)  # not committed, so it counts as old
    code, _, record = run(checkout)
    assert code == 1
    assert record.failures == ["test_never.py::test_never"]
    assert (record.passed, record.failed) == (2, 1)


def test_a_file_that_can_not_be_collected_gets_no_second_try(checkout: Path) -> None:
    (checkout / "test_broken.py").write_text("import no_such_module\n")
    code, output, _ = run(checkout)
    assert code != 0
    assert "once more" not in output


def test_a_run_without_tests_fails(checkout: Path) -> None:
    assert run(checkout, "-k", "nothing_is_named_so")[0] == 5


@pytest.mark.parametrize(
    ("tests", "changed", "expected"),
    [
        ([], [], False),
        (["tests/a.py::test"], ["tests/b.py"], True),
        (["tests/a.py::test"], ["tests/a.py"], False),
        ([f"tests/a.py::test_{number}" for number in range(5)], [], True),
        ([f"tests/a.py::test_{number}" for number in range(6)], [], False),
        (["tests/a.py"], [], False),
    ],
)
def test_which_failures_get_a_second_try(
    tests: list[str], changed: list[str], expected: bool
) -> None:
    assert run_suite.tried_again(tests, changed) is expected


def test_counts_are_those_of_the_closing_line() -> None:
    closing = "=== 1 failed, 40 passed, 2 skipped, 1 error in 61.2s (0:01:01) ==="
    output = f"== 3 passed in 1.00s ==\n{closing}\n"
    assert run_suite.counts(output) == {"passed": 40, "failed": 2, "skipped": 2}


@pytest.mark.parametrize("marked", ["environment", "command"])
def test_a_process_that_a_suite_left_behind_is_found(tmp_path: Path, marked: str) -> None:
    folder = str(tmp_path / "suite")
    environment, words = dict(os.environ), [sys.executable, "-c", "input()"]
    if marked == "environment":
        environment |= {"TORCHYARD_ATTEMPT": "a", "TMPDIR": folder}
    else:
        words += ["-m", "torchyard.server", "--home", f"{folder}/home"]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE) as process:
        (command,) = eventually(lambda: run_suites.left_behind(folder), "the process to be found")
        assert command.startswith(f"{process.pid} ")
        assert run_suites.left_behind(f"{folder}-of-another") == []
        process.kill()
    assert run_suites.left_behind(folder) == []


def test_the_table_ends_with_what_failed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "Makefile").write_text("good:\n\t@echo fine\nbad:\n\t@exit 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI_LOGS", str(tmp_path / "logs"))
    # Programs of tests that run beside this one are not of its suites.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert run_suites.main(["bad", "good"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert "fine" in lines  # a red suite hides none behind it
    assert lines[-2:] == ["failed: bad: make bad (exit code 2)", "0 passed, 1 failed"]
