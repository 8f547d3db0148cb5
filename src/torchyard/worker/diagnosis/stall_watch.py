"""Notice that the ranks of a node have come to a stand, by the job's own pace.

Owns: what counts as a sign of life, how long a pause may be, what is reported of each rank, also
what failed in it as the pause began.
Leaves: whether the whole job stands, and who is to blame, to the server, which hears from all
nodes (jobs/records/stalls.py); stacks to stacks.py, collectives to rank_calls.py.
Always: nothing is ended; a job that reads, writes, prints or logs is never reported, nor one that
computes unless it is in one of a few functions for long; a pause must be longer than any after
which this job went on.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.shared import collectives
from torchyard.worker.diagnosis import artifacts, rank_calls
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.launch.ranks import Rank
from torchyard.worker.system import activity
from torchyard.worker.system.activity import Activity

_CHECKS_PER_LIMIT = 6
_LEAST_EVERY_S = 0.5
_TIMES_LONGEST = 3.0
# Ranks that compute are reported after `_BUSY_TIMES` limits, if each was in one of `_FEW_LEAVES`
# functions in the last samples: a long evaluation or compilation is in many.
_BUSY_TIMES, _SAMPLES, _FEW_LEAVES = 10.0, 5, 3
# A rank that gives no answer in so many samples in a row, while the others do, is reported sooner:
# it holds Python's lock, as a regular expression without end does.
_SILENT_SAMPLES = 2
# What threads that only wait use: below it a rank does nothing.
_IDLE_SHARE, _IDLE_BYTES_PER_S = 0.02, 16 << 10
# With lines a rank first reads the tables of symbols of all of torch.
_ANSWER_S, _ANSWER_WITH_LINES_S = 1.5, 5.0
_LONGEST_RANK = 9
# A thread or a child may have failed this long before its rank came to a stand.
_BEFORE_PAUSE_S = 5.0


@dataclass(frozen=True)
class Positions:
    """`written` writes the stacks of the ranks and returns where each is; `leaves` only asks in
    which function each is, as its file and name.
    """

    written: Callable[[Mapping[int, Rank], str], list[dict[str, Any]]]
    leaves: Callable[[Mapping[int, Rank]], dict[int, tuple[str, str]]]


class StallWatch:
    """Of one node, from the start of its ranks.

    Args:
        limit_s: the shortest pause that is reported.
        progress: changes whenever the ranks printed or logged something.
        post: posts an event to the server.
    """

    def __init__(
        self,
        context: DiagnosisContext,
        limit_s: float,
        progress: Callable[[], object],
        positions: Positions,
        post: Callable[..., None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._limit_s = limit_s
        self._progress = progress
        self._positions = positions
        self._post = post
        self._now = now
        self._every_s = max(_LEAST_EVERY_S, limit_s / _CHECKS_PER_LIMIT)
        self._measured_at = now()
        self._measured: Mapping[int, Activity] = {}
        self._progressed = progress()
        # Pauses before the first sign of progress, while packages are imported, are not its pace.
        self._has_begun = False
        self._quiet_since: float | None = None
        self._was_active = False
        self._longest_s = 0.0
        self._progress_at = self._sampled_at = now()
        self._calls_at_sample: list[dict[str, Any]] | None = None
        # Samples in a row in which some rank gave no answer, and others did.
        self._silent = 0
        # The function that each rank was in, by sample.
        self._leaves: deque[dict[int, tuple[str, str]]] = deque(maxlen=_SAMPLES)
        self._calls: list[dict[str, Any]] | None = None
        self._reported = self._reported_busy = False

    def check(self, running: Mapping[int, Rank]) -> float:
        """Look at the ranks; return in how many seconds to look again."""
        now = self._now()
        if (left_s := self._measured_at + self._every_s - now) > 0:
            return left_s
        before, self._measured = self._measured, activity.measure(running)
        last_at, self._measured_at = self._measured_at, now
        progressed, self._progressed = self._progressed, self._progress()
        computes = _computes(before, self._measured, now - last_at)
        self._has_begun = self._has_begun or progressed != self._progressed
        if progressed != self._progressed or _moves(before, self._measured, now - last_at):
            self._note_progress(now)
        elif computes:
            # A thread that wakes up now and then is no sign of life; two busy intervals are.
            if self._was_active or self._quiet_since is None:
                self._check_computing(running, now)
        elif self._quiet_since is None:
            self._quiet_since = last_at
        elif running:
            self._check_pause(running, now)
        self._was_active = computes
        return self._every_s

    def ending(self, positions: list[dict[str, Any]]) -> None:
        """Report what the ranks called last, because one of them failed or they stand too long."""
        if ranks := self._ranks_of(self._read_calls(), positions):
            self._post("ranks_stand", quiet_s=0.0, ranks=ranks)

    @property
    def _limit_now_s(self) -> float:
        return max(self._limit_s, _TIMES_LONGEST * self._longest_s)

    def _note_progress(self, now: float) -> None:
        self._end_pause(now)
        self._progress_at = now
        self._leaves.clear()
        self._silent = 0
        if self._reported:
            self._reported = False
            self._post("ranks_go_on")

    def _end_pause(self, now: float) -> None:
        if self._quiet_since is not None and self._has_begun:
            self._longest_s = max(self._longest_s, now - self._quiet_since)
        self._quiet_since = self._calls = None

    def _check_computing(self, running: Mapping[int, Rank], now: float) -> None:
        """Check ranks that compute without progress: in an endless function, or in a long one."""
        self._end_pause(now)
        if self._reported and not self._reported_busy:
            self._reported = False
            self._post("ranks_go_on")
        busy_s = now - self._progress_at
        if now < self._sampled_at + self._limit_s:
            return
        limit_s = max(_BUSY_TIMES * self._limit_s, self._limit_now_s)
        if busy_s < (self._limit_now_s if self._has_begun else limit_s / 2):
            return
        self._sampled_at = now
        calls, silent = self._ask()
        self._silent = self._silent + 1 if silent and calls else 0
        if busy_s >= limit_s / 2:
            self._leaves.append(self._positions.leaves(running))
        self._measured = activity.measure(running)
        if self._calls_at_sample is not None and _have_advanced(
            _numbers(self._calls_at_sample), _numbers(calls)
        ):
            # This may also be a rank that now waits for the one that was reported before.
            self._note_progress(now)
            busy_s = 0.0
        self._calls_at_sample = calls
        is_without_end = busy_s >= limit_s and self._is_in_few_functions()
        if not self._reported and (self._silent >= _SILENT_SAMPLES or is_without_end):
            self._reported_busy = True
            self._report(running, busy_s, calls)

    def _is_in_few_functions(self) -> bool:
        """Whether each rank was in one of a few functions in all of the last samples."""
        functions = [set(leaves.items()) for leaves in self._leaves]
        by_rank = Counter(rank for rank, _ in set().union(*functions))
        return len(self._leaves) == _SAMPLES and all(n <= _FEW_LEAVES for n in by_rank.values())

    def _check_pause(self, running: Mapping[int, Rank], now: float) -> None:
        assert self._quiet_since is not None
        quiet_s = now - self._quiet_since
        if self._reported or quiet_s < self._limit_now_s / 2:
            return
        calls = self._read_calls()
        # To answer costs the ranks something, too.
        self._measured = activity.measure(running)
        if self._calls is not None and _have_advanced(_numbers(self._calls), _numbers(calls)):
            # Steps that cost next to nothing are steps all the same.
            self._has_begun = True
            self._note_progress(now)
            return
        self._calls = calls
        if quiet_s < self._limit_now_s:
            return
        self._reported_busy = False
        self._report(running, quiet_s, calls)

    def _report(
        self, running: Mapping[int, Rank], quiet_s: float, calls: list[dict[str, Any]]
    ) -> None:
        self._reported = True
        calls = _completed(self._read_calls(with_lines=True), calls)
        positions = self._positions.written(running, f"no progress for {quiet_s:.0f} s")
        ranks = self._ranks_of(calls, positions)
        since = time.time() - quiet_s - _BEFORE_PAUSE_S
        for rank in ranks:
            if failed := self._failed_before(rank["rank"], since):
                rank["failed_before"] = failed
        self._post(
            "ranks_stand", quiet_s=round(quiet_s, 1), computes=self._reported_busy, ranks=ranks
        )

    def _ranks_of(
        self, calls: list[dict[str, Any]], positions: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """One entry for each rank: where it stands, and its last collectives."""
        ranks = {str(position["rank"]): dict(position) for position in positions}
        for body in calls:
            number = str(body.get("rank"))
            if not (number.isascii() and number.isdigit()) or len(number) > _LONGEST_RANK:
                continue
            listed = collectives.plain(body)
            for call in (call for group in listed["groups"] for call in group["calls"]):
                call["where"] = self._relative(call["where"])
            ranks.setdefault(number, {"rank": int(number)}).update(listed)
            ranks[number]["ended"] = body.get("ended") is True
            if body.get("where"):
                ranks[number]["where"] = self._relative(body["where"])
        return list(ranks.values())

    def _failed_before(self, rank: int, since: float) -> str:
        """What failed in a thread or a child of the rank as the pause began: it may wait for that.

        Args:
            since: in seconds since 1970.
        """
        records = artifacts.records(self._context.records_folder(rank))
        failed = [record for record in records if record.trace is not None and record.at >= since]
        if not failed or (trace := failed[0].trace) is None:
            return ""
        from torchyard.worker.diagnosis import diagnosis  # Most jobs need none.

        part = "thread" if failed[0].kind == "thread" else "process"
        location = diagnosis.location_of(artifacts.user_frame(trace.frames), self._context)
        return f"a {part} of rank {rank} failed: {diagnosis.short_title(trace)}{location}"

    def _relative(self, where: Any) -> str:
        """A line with its file relative to the job's folder."""
        return str(where or "").removeprefix(f"{self._context.work}/")

    def _read_calls(self, with_lines: bool = False) -> list[dict[str, Any]]:
        return self._ask(with_lines)[0]

    def _ask(self, with_lines: bool = False) -> tuple[list[dict[str, Any]], int]:
        folders: list[Path] = sorted(self._context.errors.glob("rank-*"))
        limit_s = _ANSWER_WITH_LINES_S if with_lines else _ANSWER_S
        return rank_calls.ask(folders, limit_s, with_lines=with_lines)


def _computes(before: Mapping[int, Activity], now: Mapping[int, Activity], seconds: float) -> bool:
    if before.keys() != now.keys():
        return True
    return any(
        each.runs or each.processor_s - before[root].processor_s > _IDLE_SHARE * seconds
        for root, each in now.items()
    )


def _moves(before: Mapping[int, Activity], now: Mapping[int, Activity], seconds: float) -> bool:
    return any(
        root in before and each.moved_bytes - before[root].moved_bytes > _IDLE_BYTES_PER_S * seconds
        for root, each in now.items()
    )


def _completed(calls: list[dict[str, Any]], previous: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the previous list of each rank that had no time to answer."""
    answered = {str(body.get("rank")) for body in calls}
    return calls + [body for body in previous if str(body.get("rank")) not in answered]


def _numbers(calls: list[dict[str, Any]]) -> dict[tuple[str, str], list[Any]]:
    """How far each rank has come, in each of its groups."""
    return {
        (str(body.get("rank")), group["name"]): group["calls"][-1:]
        for body in calls
        for group in collectives.plain(body)["groups"]
    }


def _have_advanced(before: Mapping[Any, list[Any]], now: Mapping[Any, list[Any]]) -> bool:
    """By those that answered both times."""
    return any(now[key] != before[key] for key in now.keys() & before.keys())
