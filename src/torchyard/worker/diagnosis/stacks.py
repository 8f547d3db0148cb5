"""Write the stacks of a rank's processes: Python's, otherwise the kernel's state.

Owns: requesting stacks from processes, the file they are written to.
Leaves: when to do that to watches.py.
Always: only a process that handles the signal receives it, because it would end any other; the
script is not affected.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared.processes import Process, send
from torchyard.worker.diagnosis import artifacts
from torchyard.worker.diagnosis.artifacts import Frame
from torchyard.worker.in_rank.rank_hook import STACKS_SIGNAL
from torchyard.worker.system import processes

ANSWER_S = 1.0
_POLL_EVERY_S = 0.02
_MAX_PROCESSES = 64
_MAX_BYTES = 256 << 10


@dataclass(frozen=True)
class RankPosition:
    """Where a rank is: the frame of the user's Python code, if any, and all of its stacks.

    `waits_in` is the function of torch.distributed that this code has called; empty if it is in
    none. `leaf` is the function that it is in, whoever wrote it. `state` says what is not seen by
    the frame: that Python waits at its end, or that a signal has suspended the rank.
    """

    frame: Frame | None
    text: str
    waits_in: str = ""
    leaf: tuple[str, str] = ("", "")
    state: str = ""


def write_stacks(
    root: int,
    errors: Path,
    target: Path | None,
    title: str,
    signal_deadline: float = math.inf,
    answer_s: float = ANSWER_S,
) -> RankPosition:
    """Append the stacks of a rank and its children to `target`; return where the rank is.

    Args:
        root: the rank's own process.
        target: None to write none.
        errors: the folder for the records of its Pythons.
        signal_deadline: by the monotonic clock; later, only the kernel's state is read, which
            never blocks.
        answer_s: how long each process may take.
    """
    frame: Frame | None = None
    library_frame: Frame | None = None
    waits_in, leaf, state = "", ("", ""), ""
    text = [f"{title}\n"]
    for process in processes.below(root)[:_MAX_PROCESSES]:
        is_late = time.monotonic() >= signal_deadline
        stack = "" if is_late else _python_stack(process, errors, answer_s)
        if stack and frame is None:
            frames = artifacts.stack_frames(stack, of_main=True)
            frame, waits_in = artifacts.user_frame(frames), artifacts.called(frames)
            leaf = (frames[-1].file, frames[-1].function) if frames else leaf
            state = _waits_at_end(frames)
            if state:
                others = (artifacts.user_frames(each) for each in artifacts.other_threads(stack))
                library_frame = frame
                frame = next((each[-1] for each in others if each), None)
        elif not stack and frame is None and _is_suspended(process.pid):
            state = "suspended by a signal (SIGSTOP)"
        text.append(f"\n{_process_title(process)}\n{stack or _kernel_state(process.pid)}")
    if target is not None:
        with open(target, "a", encoding="utf-8", errors="replace") as file:
            file.write("".join(text) + "\n")
    return RankPosition(frame or library_frame, "".join(text), waits_in, leaf, state)


def _waits_at_end(frames: Sequence[Frame]) -> str:
    """What Python waits for at its end, if it does: the user's code is elsewhere then."""
    if frames and not artifacts.user_frames(frames):
        functions = [(frame.file.rpartition("/")[2], frame.function) for frame in frames]
        if ("threading.py", "_shutdown") in functions:
            return "Python waits at its end for a thread"
        if ("util.py", "_exit_function") in functions:
            return "Python waits at its end for a process"
    return ""


def _is_suspended(pid: int) -> bool:
    return any(line.startswith("State:\tT") for line in _lines(pid, "status"))


def _python_stack(process: Process, errors: Path, answer_s: float) -> str:
    """The stack that the process writes on request; empty if it does not support that."""
    if not _handles_signal(process.pid):
        return ""
    # A forked child writes to its parent's file.
    files = list(errors.glob("*.stack"))
    initial_sizes = {file: _size(file) for file in files}
    send(process.pid, process.start_time, STACKS_SIGNAL)
    deadline = time.monotonic() + answer_s
    previous_sizes: dict[Path, int] = {}
    while time.monotonic() < deadline:
        time.sleep(_POLL_EVERY_S)
        sizes = {file: _size(file) for file in files}
        if sizes != initial_sizes and sizes == previous_sizes:
            break
        previous_sizes = sizes
    return "".join(_read(file, initial_sizes[file]) for file in files)


def _handles_signal(pid: int) -> bool:
    for line in _lines(pid, "status"):
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)
    return False


def _process_title(process: Process) -> str:
    try:
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        command = b""
    return f"-- process {process.pid} ({command.decode(errors='replace').strip()[:300]})"


def _kernel_state(pid: int) -> str:
    """What a process without a Python stack is doing, as the kernel sees it."""
    states = [line for line in _lines(pid, "status") if line.startswith("State:")]
    wait_channel = "".join(_lines(pid, "wchan")) or "0"
    stack = "\n".join(f"  {line}" for line in _lines(pid, "stack"))
    activity = (
        "running in user space"
        if wait_channel == "0"
        else f"waiting in the kernel at {wait_channel}"
    )
    return f"{' '.join(states).replace(chr(9), ' ')}; {activity}\n{stack}"


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
        with open(file, "rb") as stack_file:
            stack_file.seek(start)
            return stack_file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
