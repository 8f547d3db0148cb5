"""Which mini-batch is scored next, and what becomes of one that fails.

Owns: mini-batches and their tries, halving those that fail, the error threshold, the end.
Leaves: what is on the disk to progress.py, scoring to processes.py, other nodes to link.py.
Always: a file is given out until it is scored or has failed for good; it counts once; the job
fails as soon as more files have failed than may.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .progress import Progress
    from .settings import Settings

_SAY_EVERY_S = 5.0
_LOG_EVERY_S = 2.0
_MOST_NAMED = 5


class BatchFailed(Exception):
    """The job fails; the text says why."""

    # A traceback, and with it the job's error, names it without a package that no user knows.
    __module__ = "builtins"


class MiniBatch:
    """The files from `start` up to `end`; `tries_left` beside the one that is made now."""

    def __init__(self, start: int, end: int, tries_left: int) -> None:
        self.start, self.end, self.tries_left = start, end, tries_left

    def __len__(self) -> int:
        return self.end - self.start


class Coordinator:
    """Asked by a thread for each scoring process of the job."""

    def __init__(
        self,
        settings: Settings,
        files: list[str],
        progress: Progress,
        log: Callable[[dict[str, float], int], None] = lambda metrics, step: None,
    ) -> None:
        self._settings, self._files, self._progress, self._log = settings, files, progress, log
        self._changed = threading.Condition()
        self._waiting: deque[MiniBatch] = deque()
        self._given = 0
        self._failure = ""
        self._finished = 0
        self._said_at = self._logged_at = self._began_at = time.monotonic()
        for start, end in _gaps(progress.done, len(files)):
            for first in range(start, end, settings.mini_batch_size):
                last = min(first + settings.mini_batch_size, end)
                self._waiting.append(MiniBatch(first, last, settings.max_retries))
        self._done = len(files) - sum(map(len, self._waiting))
        self._at_start = self._done
        self._check()

    @property
    def failure(self) -> str:
        return self._failure

    def next(self, timeout_s: float) -> MiniBatch | None:
        """One to score; None where there is none within the time, or never again: see `is_over`."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._waiting and not self._is_over():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return None
                self._changed.wait(left_s)
            if self._is_over():
                return None
            self._given += 1
            return self._waiting.popleft()

    @property
    def is_over(self) -> bool:
        with self._changed:
            return self._is_over()

    def paths(self, batch: MiniBatch) -> list[str]:
        return self._files[batch.start : batch.end]

    def give_back(self, batch: MiniBatch) -> None:
        """Nobody scores it: who had it is gone. That is not a try."""
        with self._changed:
            self._given -= 1
            self._waiting.appendleft(batch)
            self._changed.notify_all()

    def report(self, batch: MiniBatch, answer: dict[str, Any]) -> None:
        """What came of it: `{rows, count}` or `{error}`."""
        with self._changed:
            if self._failure:
                return
            if "error" in answer:
                self._fail_or_retry(batch, str(answer["error"]))
            else:
                missing = max(0, len(batch) - int(answer["count"]))
                if missing:
                    first = printable(self._files[batch.start])
                    count = int(answer["count"])
                    say(f"run() returned {count} rows for {len(batch)} files from `{first}` on")
                self._finish(batch, answer["rows"], "", missing)
            # Only now: until its halves wait, it may seem to be the last one.
            self._given -= 1
            self._changed.notify_all()

    def stop(self, reason: str) -> None:
        """The job fails."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def summary(self) -> str:
        failed = self._failed_count()
        scored = self._done - failed
        return f"{scored} of {len(self._files)} files scored, {failed} failed"

    def report_end(self) -> None:
        with self._changed:
            self._log(self._metrics(), self._done)
            say(self.summary())
            if self._failed_count() and not self._failure:
                tell(f"{self.summary()}{self._reasons()}")
            for path, error in self._progress.failed[:100]:
                say(f"failed: {printable(path)}: {error}")

    def _is_over(self) -> bool:
        return bool(self._failure) or (not self._waiting and not self._given)

    def _fail_or_retry(self, batch: MiniBatch, error: str) -> None:
        shown = f"`{printable(self._files[batch.start])}`"
        if len(batch) > 1:
            shown = f"{len(batch)} files from {shown} on"
        if batch.tries_left > 0:
            say(f"{shown} failed, {batch.tries_left} tries left: {error}")
            self._waiting.append(MiniBatch(batch.start, batch.end, batch.tries_left - 1))
        elif len(batch) > 1 and self._settings.splits_failed_batches:
            say(f"{shown} failed and are divided: {error}")
            middle = (batch.start + batch.end) // 2
            self._waiting.appendleft(MiniBatch(middle, batch.end, 0))
            self._waiting.appendleft(MiniBatch(batch.start, middle, 0))
        else:
            say(f"{shown} failed: {error}")
            self._finish(batch, [], error, 0)

    def _finish(self, batch: MiniBatch, rows: list[str], error: str, missing: int) -> None:
        failed = [(path, error) for path in self.paths(batch)] if error else []
        self._progress.add(batch.start, batch.end, rows, failed, missing)
        self._done += len(batch)
        self._finished += 1
        self._check()
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            self._log(self._metrics(), self._done)
        if now - self._said_at >= _SAY_EVERY_S:
            self._said_at = now
            say(self.summary())

    def _check(self) -> None:
        """Whether more files have failed than may, or all."""
        threshold, count = self._settings.error_threshold, len(self._files)
        failed = self._failed_count()
        text = f"{failed} of {count} files failed"
        if 0 <= threshold < failed:
            text += f", more than `error_threshold: {threshold}` allows"
        elif failed < count:
            return
        self._failure = self._failure or text + self._reasons()

    def _failed_count(self) -> int:
        return len(self._progress.failed) + self._progress.missing

    def _reasons(self) -> str:
        """Each reason once, with the first file that failed for it."""
        text = ""
        files_of: dict[str, list[str]] = {}
        for path, error in self._progress.failed:
            files_of.setdefault(error, []).append(f"`{printable(path)}`")
        for error, files in list(files_of.items())[:_MOST_NAMED]:
            more = f" and {len(files) - 1} more" if files[1:] else ""
            text += f"; {files[0]}{more}: {error}"
        if self._progress.missing:
            text += "; run() returned fewer rows than files: it returns one for each file"
        return text

    def _metrics(self) -> dict[str, float]:
        failed = self._failed_count()
        elapsed_s = max(time.monotonic() - self._began_at, 0.001)
        return {
            "files_scored": float(self._done - failed),
            "files_failed": float(failed),
            "files_per_second": (self._done - self._at_start) / elapsed_s,
        }


def say(text: str) -> None:
    """A line of the job's log."""
    print(f"torchyard: {text}", flush=True)


def tell(text: str) -> None:
    """A notice of the job."""
    folder = os.environ.get("TORCHYARD_ERRORS")
    if folder:
        path = os.path.join(folder, "notices.txt")
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text.replace("\n", " ") + "\n")


def printable(path: str) -> str:
    """On one line, whatever is in a file's name."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in path
    )


def _gaps(done: list[Any], count: int) -> list[Any]:
    """What is between the finished ranges."""
    gaps, at = [], 0
    for start, end in sorted(done):
        if start > at:
            gaps.append((at, start))
        at = max(at, end)
    if at < count:
        gaps.append((at, count))
    return gaps
