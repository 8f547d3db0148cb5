"""Ask Slurm for all jobs of a server at once.

Owns: the thread that asks about once a second, while anybody wants to know.
Leaves: what states mean to job_states.py.
Always: nobody waits for a controller that does not answer longer than for the first answer; what
is older than the limit is not given out.
"""

from __future__ import annotations

import threading
import time

from torchyard.executors.executor import EngineRefused, EngineUnreachable
from torchyard.executors.slurm.commands import JobRow, Slurm
from torchyard.executors.slurm.job_states import OVER

_EVERY_S = 1.0
_FIRST_ANSWER_S = 3.0
_OLDEST_S = 15.0
_FORGOTTEN_AFTER_S = 60.0


class Poll:
    """Rows of the jobs that somebody asked for in the last minute."""

    def __init__(self, slurm: Slurm, every_s: float = _EVERY_S) -> None:
        self._slurm = slurm
        self._every_s = every_s
        self._changed = threading.Condition()
        self._asked_at: dict[int, float] = {}
        self._rows: dict[int, JobRow | None] = {}
        self._answered_at = 0.0
        self._failure: EngineUnreachable | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def row(self, id: int) -> tuple[JobRow | None, float]:
        """The job, None when Slurm does not know it, and how many seconds ago it was so.

        Raises:
            EngineUnreachable: Slurm has not answered for a while.
        """
        deadline = time.monotonic() + _FIRST_ANSWER_S
        with self._changed:
            self._asked_at[id] = time.monotonic()
            self._start()
            while id not in self._rows and self._failure is None and not self._closed:
                if not self._changed.wait(deadline - time.monotonic()):
                    break
            age_s = time.monotonic() - self._answered_at
            if id not in self._rows or age_s > _OLDEST_S:
                raise self._failure or EngineUnreachable(
                    "Slurm has not answered yet", "see `scontrol ping`"
                )
            return self._rows[id], age_s

    def forget(self, id: int) -> None:
        """Ask again before the next answer: the job has changed by what we did."""
        with self._changed:
            self._rows.pop(id, None)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_FIRST_ANSWER_S)

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="slurm-poll", daemon=True)
            self._thread.start()
        else:
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                recent = time.monotonic() - _FORGOTTEN_AFTER_S
                self._asked_at = {id: at for id, at in self._asked_at.items() if at >= recent}
                ids = sorted(self._asked_at)
                if self._closed or not ids:
                    self._thread = None
                    return
            began_at = time.monotonic()
            rows, failure = self._ask(ids)
            with self._changed:
                self._failure = failure
                if failure is None:
                    self._rows = rows
                    self._answered_at = began_at
                self._changed.notify_all()
                # Woken early by a job that was not among them.
                self._changed.wait_for(
                    lambda: self._closed or not self._asked_at.keys() <= self._rows.keys(),
                    self._every_s,
                )
                pause_s = self._every_s if failure else 0.0
                self._changed.wait_for(lambda: self._closed, pause_s)

    def _ask(self, ids: list[int]) -> tuple[dict[int, JobRow | None], EngineUnreachable | None]:
        try:
            answer = self._slurm.jobs(ids)
            rows: dict[int, JobRow | None] = {}
            for id in ids:
                before = self._rows.get(id)
                if id in answer:
                    rows[id] = answer[id]
                elif id in self._rows and (before is None or before.state in OVER):
                    rows[id] = before
                else:
                    rows[id] = _over(self._slurm.past_job(id))
            return rows, None
        except EngineUnreachable as failure:
            return {}, failure
        except EngineRefused as refusal:
            return {}, EngineUnreachable(refusal.message, refusal.hint)


def _over(past: JobRow | None) -> JobRow | None:
    """What the accounting says of a job that the controller does not know: one that it calls
    pending or running was forgotten by a controller that was killed.
    """
    return past if past is not None and past.state in OVER else None
