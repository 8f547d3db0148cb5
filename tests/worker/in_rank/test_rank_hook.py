"""The hook in every Python of a rank: it writes a record, and else nothing differs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import other_pythons
from torchyard.worker.diagnosis import artifacts
from torchyard.worker.in_rank import rank_hook, rank_record

# The name of the script's end, and its source.
ENDS = {
    "well": "print('fine')",
    "exception": "print('out'); {}['lr']",
    "exception in a function": "def f(): raise ValueError('bad')\nf()",
    "sys.exit(0)": "import sys; sys.exit(0)",
    "sys.exit(3)": "import sys; sys.exit(3)",
    "sys.exit(-1)": "import sys; sys.exit(-1)",
    "sys.exit(text)": "import sys; sys.exit('no model')",
    "sys.exit(tuple)": "import sys; sys.exit((1, 2))",
    "SystemExit": "raise SystemExit(4)",
    "exit()": "exit(5)",
    "os._exit": "import os; os._exit(6)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "SIGINT": "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(9)",
    "SIGTERM": "import os; os.kill(os.getpid(), 15)",
    "SIGSEGV": "import os; os.kill(os.getpid(), 11)",
    "abort": "import os; os.abort()",
    "thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
    "thread exits": "import sys, threading\n"
    "t = threading.Thread(target=sys.exit, args=(2,)); t.start(); t.join()",
    "thread ends": "import sys, threading\n"
    "def f(): sys.exit(0)\nt = threading.Thread(target=f); t.start(); t.join()",
    "own hook": "import sys\nsys.excepthook = lambda *_: print('mine')\n1 / 0",
    "chained hook": "import sys\nold = sys.excepthook\n"
    "sys.excepthook = lambda *a: (print('mine'), old(*a))\n1 / 0",
    "atexit": "import atexit; atexit.register(print, 'last')\n1 / 0",
    "atexit raises": "import atexit; atexit.register(exec, '1 / 0')",
    "kept in a class": "import sys\nclass A: quit = sys.exit\nA().quit(7)",
    "pickled": "import pickle, sys\nassert pickle.loads(pickle.dumps(sys.exit)) is sys.exit",
    "argparse": "import argparse; argparse.ArgumentParser().parse_args(['--no'])",
    "syntax": "for x in",
    "import": "import no_such_package",
    "warning": "import warnings; warnings.warn('old')",
    "descriptors": "import os; f = os.open('/dev/null', 0); print(f)",
    "closes all": "import os; os.closerange(3, 1000); f = os.open('/dev/null', 0); 1 / 0",
    "fork": "import os\nif os.fork() == 0:\n    raise ValueError('child')\nos.wait()",
    "stdin": "input()",
}


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with the hook as an environment has it."""
    folder = tmp_path / "packages"
    folder.mkdir()
    here = Path(rank_hook.__file__).parent
    shutil.copy(here / "rank_hook.py", folder / "_torchyard_rank_hook.py")
    shutil.copy(here / "rank_record.py", folder / f"{rank_hook.RECORDER}.py")
    return folder


def run(
    script: Path, packages: Path, errors: Path | None, python: str = sys.executable
) -> tuple[int, str, str]:
    start = f"import sys; sys.path.append({str(packages)!r})\n"
    start += "import _torchyard_rank_hook; _torchyard_rank_hook.install(); sys.path.pop()\n"
    start = start if errors else ""
    # As a .pth file would run it: before the script, and not part of it.
    site = script.parent / f"site-{bool(errors)}"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(start)
    variables = {
        **os.environ,
        "PYTHONPATH": f"{site}{os.pathsep}{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if errors:
        errors.mkdir(exist_ok=True)
        variables[rank_hook.VARIABLE] = str(errors)
    ran = subprocess.run(
        [python, str(script)], capture_output=True, text=True, env=variables, timeout=60,
        stdin=subprocess.DEVNULL, check=False, start_new_session=True,
    )  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("version", [other_pythons.IN_RANK, other_pythons.CURRENT])
@pytest.mark.parametrize("end", ENDS)
def test_nothing_differs_for_the_script(
    end: str, version: str, packages: Path, tmp_path: Path
) -> None:
    python = other_pythons.python(version)
    script = tmp_path / "script.py"
    script.write_text(ENDS[end])
    errors = tmp_path / "errors"
    assert run(script, packages, errors, python) == run(script, packages, None, python)


@pytest.mark.parametrize("version", other_pythons.VERSIONS)
def test_other_pythons(version: str, packages: Path, tmp_path: Path) -> None:
    python = other_pythons.python(version)
    script = tmp_path / "script.py"
    script.write_text("print('out')\ndef f():\n    raise ValueError('bad')\nf()\n")
    errors = tmp_path / "errors"
    assert run(script, packages, errors, python) == run(script, packages, None, python)
    (record,) = read(errors)
    assert (record["type"], record["message"]) == ("ValueError", "bad")


def read(errors: Path) -> list[dict[str, object]]:
    return [json.loads(file.read_text()) for file in sorted(errors.glob("*.json"))]


@pytest.mark.parametrize(
    ("end", "kind", "type_name"),
    [
        ("exception", "exception", "KeyError"),
        ("own hook", "exception", "ZeroDivisionError"),
        ("chained hook", "exception", "ZeroDivisionError"),
        ("thread", "thread", "ZeroDivisionError"),
        ("thread exits", "thread", "SystemExit"),
        ("import", "exception", "ModuleNotFoundError"),
        ("syntax", "exception", "SyntaxError"),
        ("sys.exit(text)", "exit", ""),
        ("sys.exit(3)", "exit", ""),
        ("closes all", "exception", "ZeroDivisionError"),
    ],
)
def test_a_bad_end_leaves_one_record(
    end: str, kind: str, type_name: str, packages: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENDS[end])
    run(script, packages, tmp_path / "errors")
    (record,) = read(tmp_path / "errors")
    assert (record["kind"], record["type"]) == (kind, type_name)


@pytest.mark.parametrize("end", ["well", "sys.exit(0)", "atexit", "pickled", "thread ends"])
def test_an_end_by_itself_leaves_no_empty_file(end: str, packages: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENDS[end])
    run(script, packages, tmp_path / "errors")
    assert not list((tmp_path / "errors").glob("*.stack"))


@pytest.mark.parametrize(
    ("thread", "end", "kinds"),
    [
        # It ends while Python waits for it at the end.
        ("time.sleep(0.3); sys.exit(0)", "sys.exit(3)", ["exit"]),
        ("time.sleep(0.3); raise SystemExit", "sys.exit(3)", ["exit"]),
        ("sys.exit('no more data')", "t.join()", []),
        ("sys.exit(2)", "t.join(); sys.exit(3)", ["thread", "exit"]),
    ],
)
def test_a_thread_that_exits_hides_no_exit(
    thread: str, end: str, kinds: list[str], packages: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys, threading, time\ndef f():\n    {thread}\n"
        f"t = threading.Thread(target=f)\nt.start()\n{end}\n"
    )
    run(script, packages, tmp_path / "errors")
    assert [record["kind"] for record in read(tmp_path / "errors")] == kinds


# What tells how each end was, beside a record.
MARKS = {
    "well": ".end",
    "sys.exit(0)": ".place.end",
    "atexit raises": ".end",
    "SystemExit": ".quit.place",
    "exit()": ".quit.place",
    "os._exit": ".stack.place",
    "abort": ".stack",
    "exception": "",
    "sys.exit(3)": "",
}


def marks(end: str, packages: Path, tmp_path: Path, python: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(ENDS[end])
    run(script, packages, tmp_path / "errors", python)
    suffixes = {file.suffix for file in (tmp_path / "errors").iterdir()}
    return "".join(sorted(suffixes - {".json"}, reverse=True))


@pytest.mark.parametrize("end", MARKS)
def test_an_end_by_itself_is_told_from_others(end: str, packages: Path, tmp_path: Path) -> None:
    assert marks(end, packages, tmp_path, sys.executable) == MARKS[end]


@pytest.mark.parametrize(
    ("source", "is_told"),
    [
        ("print('fine')", True),
        ("import sys; sys.exit(0)", True),
        ("import os; os._exit(0)", True),
        ("import os; os._exit(6)", False),
        ("import sys; sys.exit(3)", False),
        ("1 / 0", False),
        ("import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()\n1 / 0", False),
    ],
)
def test_a_rank_tells_that_it_leaves_with_code_0(
    source: str, is_told: bool, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    script = tmp_path / "script.py"
    script.write_text(source)
    run(script, packages, tmp_path / "errors")
    leavings = artifacts.leavings(tmp_path / "errors")
    assert [(leaving.rank, leaving.parent) for leaving in leavings] == [(3, os.getpid())] * is_told


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import sys\n\nif True: raise SystemExit(4)", 3),
        ("def main():\n    quit(4)  # not exit(5)\n\nmain()", 2),
        ("def main():\n    return 4\n\nraise SystemExit(main())", 4),
        ("if len('a') > 1:\n    exit(3)\nexit(4)", 0),
        ("exec('raise System' + 'Exit(4)')", 0),
    ],
)
def test_the_only_line_that_raises_system_exit_is_noted(
    source: str, line: int, packages: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(source)
    run(script, packages, tmp_path / "errors")
    (ended,) = (tmp_path / "errors").glob("*.quit")
    place = artifacts.place_of_exit(tmp_path / "errors", int(ended.stem))
    assert (place.line if place is not None else 0) == line


@pytest.mark.slow
@pytest.mark.parametrize("version", other_pythons.VERSIONS)
@pytest.mark.parametrize("end", MARKS)
def test_an_end_by_itself_is_told_from_others_in_every_python(
    end: str, version: str, packages: Path, tmp_path: Path
) -> None:
    assert marks(end, packages, tmp_path, other_pythons.python(version)) == MARKS[end]


def test_the_pythons_of_a_python_of_a_script_leave_no_file(packages: Path, tmp_path: Path) -> None:
    start = "import subprocess, sys; subprocess.run([sys.executable, '-c', {!r}], check=True)"
    script = tmp_path / "script.py"
    script.write_text(start.format(start.format("pass")))
    assert run(script, packages, tmp_path / "errors")[0] == 0
    # Of three Pythons, the script itself and the one that it started.
    assert sorted(file.suffix for file in (tmp_path / "errors").iterdir()) == [".end", ".quit"]


def test_a_crash_leaves_its_stack(packages: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import ctypes\ndef native():\n    ctypes.string_at(0)\nnative()\n")
    code, _, err = run(script, packages, tmp_path / "errors")
    assert (code, err) == (-signal.SIGSEGV, "")
    (stack,) = (tmp_path / "errors").glob("*.stack")
    assert "in native" in stack.read_text()


def test_the_signal_for_stacks_disturbs_nothing(packages: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import os, time\ndef wait():\n    os.kill(os.getpid(), {rank_hook.STACKS_SIGNAL})\n"
        "    time.sleep(0.2)\n    return 'done'\nprint(wait())\n"
    )
    assert run(script, packages, tmp_path / "errors") == (0, "done\n", "")
    (stack,) = (tmp_path / "errors").glob("*.end")
    assert "in wait" in stack.read_text()


@pytest.mark.parametrize("limit", [64, 200])
def test_few_open_files_hide_no_end(limit: int, packages: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENDS["sys.exit(3)"])
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nulimit -n {limit}\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    code, _, _ = run(script, packages, tmp_path / "errors", str(program))
    (record,) = read(tmp_path / "errors")
    assert (code, record["kind"], record["status"]) == (3, "exit", 3)
    # It would say that Python was ended at once.
    assert not list((tmp_path / "errors").glob("*.stack"))


def test_a_folder_that_is_gone_harms_nobody(packages: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import os, shutil\nshutil.rmtree(os.environ[{rank_hook.VARIABLE!r}])\nraise ValueError\n"
    )
    code, _, err = run(script, packages, tmp_path / "errors")
    assert code == 1 and err.rstrip().endswith("ValueError")


def test_a_record_is_bounded(tmp_path: Path) -> None:
    try:
        raise ValueError("x" * 1_000_000)
    except ValueError as error:
        record = rank_record.describe(
            time.time(), "exception", ValueError, error, error.__traceback__
        )
    rank_record.save(str(tmp_path), record)
    (file,) = tmp_path.glob("*.json")
    assert file.stat().st_size < 100_000


def test_an_exit_within_a_library_is_recorded_with_its_callers(
    packages: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import argparse\ndef parse():\n    argparse.ArgumentParser().error('too long')\nparse()\n"
    )
    run(script, packages, tmp_path / "errors")
    (record,) = artifacts.records(tmp_path / "errors")
    assert record.refused_arguments and not record.is_of_script
    assert [(frame.line, frame.function) for frame in record.callers[2:]] == [
        (3, "parse"), (4, "<module>"),
    ]  # fmt: skip
    assert record.exit_frame == record.callers[2]


HANDLED = "try:\n    socket.create_connection(('127.0.0.1', 9))\nexcept OSError:"


@pytest.mark.parametrize(
    ("call", "has_address"),
    [
        ("urllib.request.urlopen('http://127.0.0.1:9')", True),
        ("socket.create_connection(('127.0.0.1', 9))", True),
        ("open('/no/such/file')", False),
        (f"{HANDLED}\n    raise KeyError('x') from None", False),
        (f"{HANDLED}\n    raise KeyError('x')", True),
    ],
)
def test_the_address_that_could_not_be_reached_is_recorded(
    call: str, has_address: bool, packages: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import socket, urllib.request\n{call}\n")
    run(script, packages, tmp_path / "errors")
    (record,) = artifacts.records(tmp_path / "errors")
    assert record.address == ("127.0.0.1:9" if has_address else "")
