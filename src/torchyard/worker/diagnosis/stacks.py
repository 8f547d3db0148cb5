"""Where the processes of a rank stand: Python's stacks, or else what the kernel says.

Owns: asking processes for their stacks, the file they are written to.
Leaves: when to ask to watches.py.
Always: only a process that waits for the signal is sent it, since it would end any other; asking
changes nothing in the script.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared.processes import Process, send
from torchyard.worker.diagnosis import artifacts
from torchyard.worker.diagnosis.artifacts import Frame
from torchyard.worker.in_rank.rank_hook import STACKS_SIGNAL
from torchyard.worker.system import processes

_ANSWER_S = 1.0
_LOOK_EVERY_S = 0.02
_MOST_PROCESSES = 64
_MOST_BYTES = 256 << 10


@dataclass(frozen=True)
class Stand:
    """Where a rank stands: in its own code, if that is Python, and all of its stacks."""

    frame: Frame | None
    text: str


def write(root: int, errors: Path, target: Path, title: str, ask_until: float = math.inf) -> Stand:
    """Add the stacks of a rank and what it started to `target`; the answer is where it stands.

    Args:
        root: the rank's own process.
        errors: the folder that its Pythons were given for their records.
        ask_until: by the monotonic clock; later, only the kernel is asked, which never waits.
    """
    stands: Frame | None = None
    text = [f"{title}\n"]
    for process in processes.below(root)[:_MOST_PROCESSES]:
        is_late = time.monotonic() >= ask_until
        stack = "" if is_late else _python_stack(process, errors)
        if stack and stands is None:
            stands = artifacts.where(artifacts.stack_frames(stack, of_main=True))
        text.append(f"\n{_described(process)}\n{stack or _in_kernel(process.pid)}")
    with open(target, "a", encoding="utf-8", errors="replace") as file:
        file.write("".join(text) + "\n")
    return Stand(stands, "".join(text))


def _python_stack(process: Process, errors: Path) -> str:
    """What the process writes when it is asked; empty for one that is no Python of ours."""
    if not _waits_for_signal(process.pid):
        return ""
    # A child that was forked writes to its parent's file.
    files = list(errors.glob("*.stack"))
    before = {file: _size(file) for file in files}
    send(process.pid, process.start_time, STACKS_SIGNAL)
    until = time.monotonic() + _ANSWER_S
    seen: dict[Path, int] = {}
    while time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
        sizes = {file: _size(file) for file in files}
        if sizes != before and sizes == seen:
            break
        seen = sizes
    return "".join(_read(file, before[file]) for file in files)


def _waits_for_signal(pid: int) -> bool:
    for line in _lines(pid, "status"):
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)
    return False


def _described(process: Process) -> str:
    try:
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        words = b""
    return f"-- process {process.pid} ({words.decode(errors='replace').strip()[:300]})"


def _in_kernel(pid: int) -> str:
    """What a process without a Python stack waits for."""
    states = [line for line in _lines(pid, "status") if line.startswith("State:")]
    waits = "".join(_lines(pid, "wchan")) or "0"
    stack = "\n".join(f"  {line}" for line in _lines(pid, "stack"))
    where = "runs in user space" if waits == "0" else f"waits in the kernel at {waits}"
    return f"{' '.join(states).replace(chr(9), ' ')}; {where}\n{stack}"


def _lines(pid: int, name: str) -> Iterator[str]:
    try:
        yield from Path(f"/proc/{pid}/{name}").read_text(errors="replace").splitlines()
    except OSError:
        return


def _size(file: Path) -> int:
    try:
        return os.path.getsize(file)
    except OSError:
        return 0


def _read(file: Path, start: int) -> str:
    try:
        with open(file, "rb") as opened:
            opened.seek(start)
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
