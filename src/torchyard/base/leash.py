"""Run a program so that nothing which it started is left.

Owns: the small program between this process and the other one, ending both.
Leaves: what the program's output means to the caller.
Always: when the program ends, so does all that it started, in whatever session: podman's pause
process is one. When the thread that started it ends first, even when that is killed, the program
does, too. On Linux alone.

A small program does this: code between fork and exec is unsafe in a server with threads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, AnyStr

# How long it may take to end what was started, before the rest is killed together.
_END_LIMIT_S = 10.0

# Its children's children become its own when their parents end (prctl(2), PR_SET_CHILD_SUBREAPER).
_PROGRAM = """
import ctypes, os, signal, sys, time
PARENT_DEATH_SIGNAL, CHILD_SUBREAPER, LIMIT_S = 1, 36, 5.0
prctl = ctypes.CDLL(None).prctl
def ends_with_parent(by, parent):
    prctl(PARENT_DEATH_SIGNAL, int(by), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
def children():
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == own:
                yield int(name)
def end_children():
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in children():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.005)
def stop(*_):
    end_children()
    os._exit(128 + signal.SIGTERM)
own = os.getpid()
signal.signal(signal.SIGTERM, stop)
ends_with_parent(signal.SIGTERM, int(sys.argv[1]))
prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
umask = os.environ.pop("TORCHYARD_UMASK", "")
if umask:
    os.umask(int(umask, 8))
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ends_with_parent(signal.SIGKILL, own)
    os.execv(sys.argv[2], sys.argv[2:])
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
end_children()
os._exit(code if code >= 0 else 128 - code)
"""


def run(
    words: Sequence[str],
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
) -> subprocess.CompletedProcess[str]:
    """Run the program and read what it prints.

    Args:
        words: the first is an absolute path.
        variables: its environment; this process's when None.

    Raises:
        TimeoutExpired: it took longer, and was ended.
    """
    with subprocess.Popen(
        command(words),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=None if variables is None else dict(variables),
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            end(process)
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def command(words: Sequence[str]) -> list[str]:
    """What to start in place of `words`, in a session of its own."""
    if sys.platform != "linux":
        return list(words)
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), *words]


def end(process: subprocess.Popen[AnyStr]) -> None:
    """End what `command` started, with all that it started, unless it has ended."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
