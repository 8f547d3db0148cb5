"""A Python that failed while its rank succeeded is told; the job's shell has nothing of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import variables_page
from torchyard.worker.files.thin_environment import put_hooks
from worker.bench import Bench

SUCCEEDED = "rank 0 succeeded, but a program in it failed: "
IN_PIPE = "; shell pipes hide failures unless the command starts with `set -o pipefail`"
RAISE = "raise ValueError('no corpus')\n"
RAISED = "ValueError: no corpus (train.py line 1)"
EXIT = "import sys\nsys.exit(4)\n"
ABORT_AT_END = """
import ctypes
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
"""


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """Variables that find a `python` with the hooks of ranks."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    put_hooks(tmp_path / "hooks")
    return {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "hooks")}


def run(bench: Bench, command: str, variables: dict[str, str], script: str = "") -> list[str]:
    """Run it beside `train.py`; return the notices."""
    code = bench.server.put_snapshot({"train.py": script}) if script else ""
    bench.run(bench.plan(command, environment_variables=variables, code=code))
    events = bench.server.events.get(0, [])
    return [event["body"]["message"] for event in events if event["kind"] == "notice"]


@pytest.mark.parametrize(
    ("command", "script", "expected"),
    [
        ("python train.py | tee log.txt", RAISE, f"{SUCCEEDED}{RAISED}{IN_PIPE}"),
        (
            "python train.py | cat",
            EXIT,
            f"{SUCCEEDED}sys.exit with code 4 (train.py line 2){IN_PIPE}",
        ),
        ("python train.py; true", RAISE, SUCCEEDED + RAISED),
        ("python train.py\npython -c 1", RAISE, SUCCEEDED + RAISED),
    ],
)
def test_a_python_that_failed_is_told_with_its_error(
    bench: Bench, programs: dict[str, str], command: str, script: str, expected: str
) -> None:
    assert run(bench, command, programs, script) == [expected]
    assert bench.exit() == {"exit_code": 0, "error": None}


@pytest.mark.parametrize(
    ("command", "script"),
    [
        # A code of its own choice, which the command may have handled.
        ("python train.py || true", EXIT),
        ("python train.py | head -c 1; true", "print('x' * 200000, flush=True)"),
        ("python train.py | cat", "print(1)"),
    ],
)
def test_what_is_handled_or_cut_off_by_its_reader_is_not_told(
    bench: Bench, programs: dict[str, str], command: str, script: str
) -> None:
    assert run(bench, command, programs, script) == []
    assert bench.exit()["exit_code"] == 0


@pytest.mark.parametrize(
    ("command", "code", "exit_code"),
    [
        ("cd nowhere; python train.py", "script_missing", 2),
        ("cd nowhere && python train.py", "file_missing", 1),
        ("set -eo pipefail\npython train.py | cat\ntrue", "script_missing", 2),
        ("set -e\npyhton prepare.py\ntrue", "command_not_found", 127),
    ],
)
def test_a_command_that_fails_fails_the_job_with_its_exit_code(
    bench: Bench, programs: dict[str, str], command: str, code: str, exit_code: int
) -> None:
    assert run(bench, command, programs) == []
    assert (bench.exit()["error"]["code"], bench.exit()["exit_code"]) == (code, exit_code)


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("set -e\ntrue\npython train.py\n", 0),
        ("set -e\ntrue\npython train.py > log.txt 2>&1\n", 0),
        ("set -eo pipefail\npython train.py | cat", 0),
        ("set -e\npython train.py\npython -c 1", 134),
    ],
)
def test_an_abort_after_the_end_fails_a_job_only_if_the_shell_skipped_something(
    bench: Bench, programs: dict[str, str], command: str, exit_code: int
) -> None:
    notices = run(bench, command, programs, ABORT_AT_END)
    assert (bench.exit()["exit_code"], len(notices)) == (exit_code, 0 if exit_code else 1)


def test_a_missing_program_has_a_hint(bench: Bench, programs: dict[str, str]) -> None:
    run(bench, "pyhton prepare.py", programs)
    hint = "`pyhton` does not exist on the node: did you mean `python`?"
    assert bench.exit()["error"]["hint"] == hint


def test_a_job_that_fails_for_conda_is_told_so(bench: Bench, programs: dict[str, str]) -> None:
    run(bench, "conda run -n torch python train.py", programs)
    assert bench.exit()["error"]["hint"] == (
        "`conda` does not exist on the node; the job's environment is active already: leave it out"
    )


def test_the_jobs_shell_has_nothing_of_ours_but_documented_variables(
    bench: Bench, programs: dict[str, str]
) -> None:
    command = (
        "set -x; false; cat no-such; set +x\n"
        "trap -p; declare -F; echo ${BASH_ENV-unset}\n"
        "bash -c 'false; trap -p; declare -F; echo ${BASH_ENV-unset}'\ncompgen -v"
    )
    assert run(bench, command, programs) == []
    printed = bench.server.logs["user_logs/std_log.txt"].decode().splitlines()
    assert printed[:6] == [
        "+ false",
        "+ cat no-such",
        "cat: no-such: No such file or directory",
        "+ set +x",
        "unset",
        "unset",
    ]
    names = printed[6:]
    assert {"PATH", "TORCHYARD_RANK"} <= set(names) and "BASH_ENV" not in names
    page = variables_page.page()
    ours = [name for name in names if "TORCHYARD" in name.upper()]
    assert [name for name in ours if f"| `{name}` |" not in page] == []
