"""The table of checkpoints that a job shows among its outputs.

Owns: `checkpointHistories.csv`: its columns and one row for each version and rank.
Leaves: when a row is added to the writer.
Always: the ranks of a node append whole rows, and a table that can't be written stops nothing.
"""

from __future__ import annotations

import csv
import fcntl
import io
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

_COLUMNS = (
    "tag", "rank", "files", "size_bytes", "blocked_s", "duration_s", "throughput_mb_per_s",
    "started_at", "ended_at", "path",
)  # fmt: skip


@dataclass
class Saved:
    """One rank's part in a version. `started_at` and `ended_at` are seconds since 1970.

    `blocked_s` is how long the script waited for its copies.
    """

    tag: str
    rank: int
    path: Path
    started_at: float
    ended_at: float = 0.0
    files: int = 0
    size_bytes: int = 0
    blocked_s: float = 0.0


def append(table: Path, saved: Saved) -> None:
    """
    Raises:
        OSError: the table can't be written.
    """
    duration_s = max(saved.ended_at - saved.started_at, 1e-6)
    row = (
        saved.tag, saved.rank, saved.files, saved.size_bytes, f"{saved.blocked_s:.6f}",
        f"{duration_s:.6f}", f"{saved.size_bytes / duration_s / 1e6:.6f}",
        _utc(saved.started_at), _utc(saved.ended_at), saved.path,
    )  # fmt: skip
    table.parent.mkdir(parents=True, exist_ok=True)
    with open(table, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = io.StringIO(newline="")
        rows = csv.writer(text)
        if file.seek(0, io.SEEK_END) == 0:
            rows.writerow(_COLUMNS)
        rows.writerow(row)
        file.write(text.getvalue().encode())


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
