"""An interactive shell in an environment, run as the real program."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eventually import eventually
from torchyard.environments.packages.uv import find_uv


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared") / "env"
    uv = [find_uv(), "--quiet", "--offline", "--cache-dir", str(folder.parent / "cache")]
    subprocess.run([*uv, "venv", "--relocatable", "-p", sys.executable, str(folder)], check=True)
    folder.with_name("env.lock").touch()
    return folder


def start(shared: Path, temporary: Path, *command: str, **variables: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-I", "-m", "torchyard.worker.launch.environment_shell"]
    return subprocess.Popen(
        [*program, "mine", str(shared), f"{shared}.lock", *command],
        env={**os.environ, "TMPDIR": str(temporary), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(shared: Path, temporary: Path, *command: str, **variables: str) -> tuple[int, str]:
    with start(shared, temporary, *command, **variables) as process:
        out, err = process.communicate(timeout=60)
        return process.returncode, out + err


def test_a_command_runs_in_its_own_thin_environment(shared: Path, tmp_path: Path) -> None:
    script = (
        "import os, sys, sysconfig, pathlib\n"
        "packages = pathlib.Path(sysconfig.get_path('purelib'))\n"
        "(packages / 'mine.py').write_text('x = 1')\n"
        "import mine\n"
        "print(sys.prefix, os.environ['VIRTUAL_ENV'], os.environ['TORCHYARD_ENVIRONMENT'])\n"
        "sys.exit(7)\n"
    )
    code, output = run(shared, tmp_path, "python", "-c", script, PYTHONPATH="/x", PYTHONHOME="/y")
    prefix, virtual, name = output.split()
    assert (code, prefix, name) == (7, virtual, "mine")
    assert Path(prefix).is_relative_to(tmp_path) and not list(tmp_path.iterdir())
    assert not list(shared.rglob("mine.py"))


def test_the_users_shell_is_started(shared: Path, tmp_path: Path) -> None:
    with start(shared, tmp_path, SHELL="/bin/sh") as process:
        out, _ = process.communicate("command -v python; exit 3\n", timeout=60)
    assert process.returncode == 3
    assert Path(out.strip()).is_relative_to(tmp_path)


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 127)])
def test_a_missing_program_is_an_error(
    shared: Path, tmp_path: Path, command: str, code: int
) -> None:
    exit_code, output = run(shared, tmp_path, command)
    assert exit_code == code and command in output and not list(tmp_path.iterdir())


def test_a_signal_ends_the_command_and_removes_the_folder(shared: Path, tmp_path: Path) -> None:
    with start(shared, tmp_path, "sh", "-c", "echo up; exec sleep 100") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        with open(f"{shared}.lock", "rb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_a_signal_right_after_the_start_is_forwarded(shared: Path, tmp_path: Path) -> None:
    for _ in range(4):
        code, output = run(shared, tmp_path, "sh", "-c", "kill -TERM $PPID; exec sleep 100")
        assert (code, output, list(tmp_path.iterdir())) == (128 + signal.SIGTERM, "", [])


def test_the_folder_of_a_killed_shell_is_removed_by_the_next_one(
    shared: Path, tmp_path: Path
) -> None:
    with start(shared, tmp_path, "sh", "-c", "echo $$; exec sleep 100") as process:
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        process.kill()
        process.wait(timeout=60)
        os.kill(inner, signal.SIGKILL)
    with start(shared, tmp_path, "sh", "-c", "echo up; exec sleep 100") as living:
        assert living.stdout is not None and living.stdout.readline() == "up\n"
        assert len(list(tmp_path.iterdir())) == 1
        run(shared, tmp_path, "true")
        assert len(list(tmp_path.iterdir())) == 1
        living.terminate()
        living.wait(timeout=60)
    eventually(lambda: not list(tmp_path.iterdir()), "the folder to be empty")
