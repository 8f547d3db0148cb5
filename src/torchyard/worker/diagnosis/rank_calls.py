"""Ask the ranks of a node for the collectives that they called last, or read what they left.

Owns: the sockets and files of in_rank/collectives_hook.py as the worker sees them.
Leaves: what is in them to shared/collectives.py.
Always: all ranks are asked at once and share one time limit; one that holds Python's lock or makes
something else of its socket gives no answer, and no more than a limit is read of any.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.shared import unix_sockets
from torchyard.worker.diagnosis import artifacts
from torchyard.worker.in_rank.collectives_hook import ENDING, SAVED, WITH_LINES

_MAX_BYTES = 256 << 10
_MAX_SOCKETS = 256
_POLL_S = 0.05


def ask(
    folders: Iterable[Path], limit_s: float, *, with_lines: bool = False
) -> tuple[list[dict[str, Any]], int]:
    """What the ranks with these folders of records called, as JSON (see shared/collectives.py); how
    many did not answer.

    Args:
        limit_s: for all of them together.
        with_lines: also the line of each call; the first time that takes a rank about a second.
    """
    deadline = time.monotonic() + limit_s
    folders = list(folders)
    asked: dict[Path, _Question] = {}
    for folder in folders:
        for file in sorted(folder.glob(f"*{ENDING}"))[:_MAX_SOCKETS]:
            saved = file.with_suffix(SAVED)
            if not saved.exists() and (asking := _asked(file, with_lines)) is not None:
                asked[saved] = _Question(asking)
    _wait(asked, deadline)
    # Last, because a rank that was asked may have ended meanwhile, with its list in a file.
    answers = [bytes(question.answer) for saved, question in asked.items() if not saved.exists()]
    for folder in folders:
        files = sorted(folder.glob(f"*{SAVED}"))[:_MAX_SOCKETS]
        answers += [artifacts.text_of(file).encode() for file in files]
    silent = sum(not question.over for question in asked.values())
    return [body for answer in answers for body in _parsed(answer)], silent


@dataclass
class _Question:
    """To one rank; `answer` is as much as came of it."""

    asking: socket.socket
    answer: bytearray = field(default_factory=bytearray)
    over: bool = False


def _asked(file: Path, with_lines: bool) -> socket.socket | None:
    """None where nobody listens any more, as at that of a rank that has ended."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    asking.setblocking(False)
    try:
        unix_sockets.connect(asking, str(file))
        asking.send(WITH_LINES if with_lines else b"-")
    except OSError:
        asking.close()
        return None
    return asking


def _wait(asked: Mapping[Path, _Question], deadline: float) -> None:
    """Until all have answered, or left a file instead."""
    while (left_s := deadline - time.monotonic()) > 0:
        open_ones = {each.asking.fileno(): each for each in asked.values() if not each.over}
        empty = [saved for saved, each in asked.items() if not each.answer and not saved.exists()]
        if not open_ones and not empty:
            break
        # No `select.select`, which knows the first 1,024 descriptors only.
        waiter = select.poll()
        for descriptor in open_ones:
            waiter.register(descriptor, select.POLLIN)
        for descriptor, _ in waiter.poll(1000 * min(_POLL_S, left_s)):
            question = open_ones[descriptor]
            try:
                chunk = question.asking.recv(65536)
            except OSError:
                chunk = b""
            question.answer += chunk
            question.over = not chunk or len(question.answer) > _MAX_BYTES
    for question in asked.values():
        question.asking.close()


def _parsed(content: bytes) -> list[dict[str, Any]]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return []
    return [body] if isinstance(body, dict) else []
