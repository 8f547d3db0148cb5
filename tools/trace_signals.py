"""Record every SIGTERM on this machine with its sender, until this program is asked to end.

    python tools/trace_signals.py FILE

For suites in which a rank was ended by a signal that nobody admits to: a process that dies of a
signal can't say who sent it, the kernel can. One line a signal: who sent it to whom, and when, in
seconds since the machine started. Needs root and tracefs; without them it records nothing and says
so. The mount and the trace end with this program.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import tempfile
from pathlib import Path

_CLONE_NEWNS = 0x20000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_POLL_MS = 500
_CHUNK = 1 << 16


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    # First, because the program that started this one may end it at once.
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with tempfile.TemporaryDirectory() as folder, open(arguments[0], "wb", buffering=0) as log:
        try:
            _mount(folder)
            trace = Path(folder) / "instances" / f"torchyard-{os.getpid()}"
            trace.mkdir()
        except OSError as error:
            log.write(f"no signals are recorded: {error}\n".encode())
            return 0
        try:
            _record(trace, log.fileno(), ending)
        finally:
            (trace / "events/signal/signal_generate/enable").write_text("0")
            trace.rmdir()
            _call("umount2", folder.encode(), 0)
    return 0


def _mount(folder: str) -> None:
    """Mount tracefs where only this process sees it."""
    _call("unshare", _CLONE_NEWNS)
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    _call("mount", b"none", folder.encode(), b"tracefs", 0, None)


def _record(trace: Path, log: int, ending: set[signal.Signals]) -> None:
    event = trace / "events/signal/signal_generate"
    (event / "filter").write_text(f"sig=={int(signal.SIGTERM)}")
    (event / "enable").write_text("1")
    pipe = os.open(trace / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.write(log, b"recording\n")
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while signal.sigtimedwait(ending, 0) is None:
            poll.poll(_POLL_MS)
            try:
                os.write(log, os.read(pipe, _CHUNK))
            except BlockingIOError:
                continue
    finally:
        os.close(pipe)


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
