"""In which order pieces of a job's logs came, so that they can be read again in that order.

Owns: a file beside the logs of a job with a line for each piece: time, log, end.
Leaves: the bytes to logs.py, merging with the job's events to requests/streams.py.
Always: the file is bounded; what it does not say comes after what it says. A line that is cut or
lost moves bytes of one log among those of others, and loses none.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

NAME = "order.jsonl"
# Each piece has a line up to here; after it each log has one a second, and none in the end.
_EXACT_BYTES, _MOST_BYTES = 1 << 20, 4 << 20
_EVERY_US = 1_000_000
_MOST_LOGS = 10_000


@dataclass(frozen=True)
class Piece:
    """Bytes of a log up to `end`, from where the piece before it ended."""

    at: datetime
    attempt: int
    path: str
    end: int


class LogOrder:
    """Writes the order of pieces of many jobs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # When a log had its last line, where not every piece has one any more.
        self._written_us: dict[tuple[Path, int, str], int] = {}

    def add(self, folder: Path, piece: Piece) -> None:
        """Note a piece of a log of the job whose logs are in `folder`."""
        at_us = int(piece.at.timestamp() * 1_000_000)
        line = json.dumps([at_us, piece.attempt, piece.path, piece.end]).encode() + b"\n"
        key = (folder, piece.attempt, piece.path)
        try:
            with self._lock, open(folder / NAME, "ab", buffering=0) as file:
                size_bytes = file.tell()
                if size_bytes >= _MOST_BYTES:
                    return
                if size_bytes >= _EXACT_BYTES:
                    if at_us - self._written_us.get(key, 0) < _EVERY_US:
                        return
                    if len(self._written_us) >= _MOST_LOGS:
                        self._written_us.clear()
                    self._written_us[key] = at_us
                file.write(line)
        except OSError:
            # The log itself is what counts, and it is written.
            return


def pieces(folder: Path) -> list[Piece]:
    """In the order in which they came; none of logs that were written without it."""
    try:
        lines = (folder / NAME).read_bytes().splitlines()
    except OSError:
        return []
    return [piece for line in lines if (piece := _piece(line)) is not None]


def _piece(line: bytes) -> Piece | None:
    """None for a line that is not whole."""
    try:
        at_us, attempt, path, end = json.loads(line)
        at = datetime.fromtimestamp(at_us / 1_000_000, timezone.utc)
        return Piece(at, int(attempt), str(path), int(end))
    except (ValueError, TypeError, OverflowError, OSError):
        return None
