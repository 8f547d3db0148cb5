"""What the server knows is its own user's alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.base.home import private_home, process_secrets

ONE_DATABASE = True
SECRET = "hunter2-hunter2"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


@contextmanager
def _serving(home: Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server as `yard-server` starts it, by a user with the usual umask."""
    ready, child_end = os.pipe()
    command = [sys.executable, "-m", "torchyard.server", "--home", str(home), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--ready-fd", str(child_end)],
        env={**os.environ, **environ},
        pass_fds=(child_end,),
        umask=0o022,
    )
    os.close(child_end)
    try:
        with os.fdopen(ready) as reader:
            assert reader.readline().startswith("http://")
        yield process
    finally:
        process.terminate()
        assert process.wait(timeout=60) in (0, -signal.SIGTERM)


def test_a_new_home_is_private(tmp_path: Path) -> None:
    private_home.ensure(tmp_path / "a" / "home", mend=False)
    assert (tmp_path / "a" / "home").stat().st_mode & 0o777 == 0o700


def test_an_empty_folder_becomes_private(home: Path) -> None:
    private_home.ensure(home, mend=False)
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o710, 0o701])
def test_an_open_home_is_refused_with_the_command(home: Path, mode: int) -> None:
    (home / "server.id").write_text("x")
    home.chmod(mode)
    with pytest.raises(InvalidInput) as refusal:
        private_home.ensure(home, mend=False)
    assert refusal.value.hint.startswith(f"type `chmod 700 {home}`")
    subprocess.run(["chmod", "700", str(home)], check=True)
    private_home.ensure(home, mend=False)


def test_a_persons_own_home_is_mended(home: Path) -> None:
    (home / "server.id").write_text("x")
    private_home.ensure(home, mend=True)
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_home_that_commands_alone_have_used_is_mended(home: Path) -> None:
    (home / "cache" / "snapshots").mkdir(parents=True)
    for name in ("server.lock", "server.log"):  # of the start that asks
        (home / name).touch()
    private_home.ensure(home, mend=True)
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_other_files_is_never_mended(home: Path) -> None:
    (home / "letter.txt").write_text("x")
    with pytest.raises(InvalidInput, match="open to other users"):
        private_home.ensure(home, mend=True)
    assert home.stat().st_mode & 0o777 == 0o755


@pytest.mark.slow
def test_a_server_refuses_an_open_home(home: Path) -> None:
    (home / "server.id").write_text("x")
    command = [sys.executable, "-m", "torchyard.server", "--home", str(home), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert f"`chmod 700 {home}`" in ended.stderr


@pytest.mark.slow
def test_a_server_keeps_its_files_and_secrets_to_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    database = f"sqlite:///{tmp_path}/{SECRET}.db"
    secrets = {"PGPASSWORD": SECRET, "TORCHYARD_DATABASE": database}
    with _serving(home, **secrets) as process:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert SECRET.encode() not in environment and b"PATH=" in environment
        assert SECRET.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "Umask:\t0077" in status
        url = json.loads((home / "server.json").read_text())["url"]
        with urllib.request.urlopen(f"{url}/health") as answer:
            assert answer.status == 200
    open_files = {
        path.name: oct(path.stat().st_mode)
        for path in (home, *home.rglob("*"))
        if path.stat().st_mode & 0o077
    }
    assert open_files == {}


def test_a_secret_is_gone_from_the_process_and_its_children() -> None:
    program = (
        "import os, subprocess\n"
        "from torchyard.base.home import process_secrets\n"
        "taken = process_secrets.take(['FIRST', 'SECOND', 'MISSING'])\n"
        "assert taken == {'FIRST': 'hunter2-hunter2', 'SECOND': ''}, taken\n"
        "print(open('/proc/self/environ').read(), subprocess.getoutput('env'))\n"
    )
    environ = {**os.environ, "FIRST": SECRET, "SECOND": "", "THIRD": "stays"}
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert SECRET not in output
    assert output.count("THIRD=stays") == 2


def test_nothing_is_taken_where_nothing_is_set() -> None:
    assert process_secrets.take(["TORCHYARD_NO_SUCH_VARIABLE"]) == {}


def test_jobs_begin_with_the_umask_of_before() -> None:
    before = os.umask(0o027)
    try:
        environ = private_home.restrict_umask({"A": "1"})
        assert environ == {"A": "1", private_home.JOB_UMASK: "027"}
        assert os.umask(before) == 0o077
    finally:
        os.umask(before)
