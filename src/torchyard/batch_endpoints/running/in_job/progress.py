"""What is scored already, on the disk: predictions, finished ranges of files, files that failed.

Owns: `predictions.csv`, `batch/progress.jsonl` and `failed_files.csv`.
Leaves: which files are scored next to coordinator.py; keeping the folders from attempt to attempt
to the job.
Always: a range is noted after its rows are written, with the length of the predictions then, so
that rows of a range that was cut off are dropped, and no row is there twice.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from .settings import Settings

FOLDER = "batch"
FAILED = "failed_files.csv"
_LONGEST_ERROR = 4000


class Progress:
    """Used under the coordinator's lock, on the first node."""

    def __init__(self, settings: Settings, files: list[str]) -> None:
        self._path = os.path.join(settings.records, FOLDER, "progress.jsonl")
        self._failed_path = os.path.join(settings.records, FAILED)
        self._predictions_path = settings.predictions if settings.appends_rows else ""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        os.makedirs(settings.output, exist_ok=True)
        names = "\0".join(files).encode("utf-8", "surrogatepass")
        self._head = {"files": len(files), "sha256": hashlib.sha256(names).hexdigest()}
        self.failed: list[tuple[str, str]] = []
        self.missing = 0
        self.done: list[tuple[int, int]] = []
        self._length = 0
        self._lines: list[dict[str, Any]] = []
        try:
            for line in self._recovered():
                self._take(line)
        except (KeyError, TypeError, ValueError):  # not written by this program
            self._lines, self._length = [], 0
            self.failed, self.missing, self.done = [], 0, []
        self._open()
        self._note(self._head)
        for line in self._lines:
            self._note(line)

    def add(
        self,
        start: int,
        end: int,
        rows: list[str],
        failed: list[tuple[str, str]],
        missing: int,
    ) -> None:
        """The files from `start` up to `end` are scored, or have failed for good."""
        if self._predictions_path and rows:
            data = "".join(row + "\n" for row in rows).encode("utf-8", "backslashreplace")
            self._predictions.write(data)
            self._predictions.flush()
            self._length += len(data)
        line = {
            "start": start,
            "end": end,
            "bytes": self._length,
            "failed": failed,
            "missing": missing,
        }
        self._note(line)
        self._count(line)
        if failed:
            self._write_failed(failed)

    def close(self) -> None:
        self._file.close()
        if self._predictions_path:
            self._predictions.close()

    def _recovered(self) -> list[dict[str, Any]]:
        """The lines of an attempt before this one whose rows are all there."""
        self._lines = []
        try:
            with open(self._path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file if line.endswith("\n")]
        except (OSError, ValueError):
            return []
        if not lines or lines[0] != self._head:
            return []
        size = 0
        if self._predictions_path and os.path.exists(self._predictions_path):
            size = os.path.getsize(self._predictions_path)
        for line in lines[1:]:
            if self._predictions_path and line["bytes"] > size:
                break
            self._lines.append(line)
        return self._lines

    def _open(self) -> None:
        self._file = open(self._path, "w", encoding="utf-8")
        with open(self._failed_path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(["file", "error"])
        if self.failed:
            self._write_failed(self.failed)
        if self._predictions_path:
            self._predictions = open(self._predictions_path, "ab")
            self._predictions.truncate(self._length)

    def _take(self, line: dict[str, Any]) -> None:
        self._length = int(line["bytes"])
        self._count(line)

    def _count(self, line: dict[str, Any]) -> None:
        self.done.append((line["start"], line["end"]))
        self.failed += [(path, error) for path, error in line["failed"]]
        self.missing += line["missing"]

    def _note(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _write_failed(self, failed: list[tuple[str, str]]) -> None:
        with open(
            self._failed_path, "a", encoding="utf-8", errors="backslashreplace", newline=""
        ) as file:
            csv.writer(file).writerows((path, error[:_LONGEST_ERROR]) for path, error in failed)
