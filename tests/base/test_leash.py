"""A program on a leash leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eventually import eventually
from torchyard.base import leash

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a leash is Linux's")

# As an ordinary user's podman does: it leaves a process in a session of its own, which closes
# everything and waits for a signal, and notes its number.
_LEAVES_ONE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 64)
    with open(sys.argv[1], "w") as note:
        note.write(str(os.getpid()))
    time.sleep(3600)
while not os.path.exists(sys.argv[1]) or not os.path.getsize(sys.argv[1]):
    time.sleep(0.01)
print("4.3.1")
"""


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_what_a_program_leaves_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pause.pid"
    ran = leash.run([sys.executable, "-c", _LEAVES_ONE, str(note)], 60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "4.3.1\n", "")
    assert not lives(int(note.read_text()))


def test_a_program_that_takes_too_long_is_ended_with_what_it_left(tmp_path: Path) -> None:
    note = tmp_path / "pause.pid"
    script = f"{_LEAVES_ONE}\ntime.sleep(3600)"
    process = subprocess.Popen(
        leash.command([sys.executable, "-c", script, str(note)]),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    eventually(lambda: note.exists() and note.read_text() != "", "a process is left")
    leash.end(process)
    assert process.returncode is not None and not lives(int(note.read_text()))
    with pytest.raises(subprocess.TimeoutExpired):
        leash.run([sys.executable, "-c", "import time; time.sleep(3600)"], 0.5)


def test_exit_codes_signals_variables_and_umask_are_the_programs_own() -> None:
    script = "import os; print(os.environ['A']); print(oct(os.umask(0))); raise SystemExit(7)"
    ran = leash.run([sys.executable, "-c", script], 60, {"A": "b", "TORCHYARD_UMASK": "027"})
    assert (ran.returncode, ran.stdout) == (7, "b\n0o27\n")
    script = "import os; os.kill(os.getpid(), 9)"
    assert leash.run([sys.executable, "-c", script], 60).returncode == 128 + 9
