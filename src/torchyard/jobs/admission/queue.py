"""Decide which queued jobs start next, and which may pass others.

Owns: the order of the queue, what holds a waiting job back, backfill, as pure functions.
Leaves: rows to queue_store.py, holding nodes to scheduling/claiming.py, preempting to
scheduling/preemption.py.
Always: a job that passes a waiting job takes only what that job could not use whenever it starts,
or is sure to end before the time at which that job is sure to start (docs/decisions/0016).

Everything that is limited has a name and whole numbers: a cluster's nodes, a machine's devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Amounts = Mapping[str, int]

# By `queue_settings.priority`; a spot job comes after all others of its cluster.
PRIORITY_RANKS = {"high": 0, "medium": 1, "low": 2}
SPOT_RANK = 10
# Beyond its `limits.timeout` a job keeps its nodes while it starts and uploads its outputs.
MARGIN_S = 120.0
UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Waiting:
    """A queued job. `limit_s` is the longest it may run, 0 when unknown.

    A `low` one may be preempted; `needs` is what all its nodes take together.
    """

    id: int
    line: str
    needs: Amounts
    priority_rank: int = PRIORITY_RANKS["medium"]
    limit_s: float = 0.0
    low: bool = False


@dataclass(frozen=True)
class Running:
    """What an attempt holds. `ends_in_s` is when it ends at the latest, None when unknown.

    An attempt that was asked to stop, for whatever reason, is `leaving`.
    """

    holds: Amounts
    ends_in_s: float | None = None
    low: bool = False
    leaving: bool = False


@dataclass(frozen=True)
class Head:
    """A job that waits, and what must be left for it.

    `spare` is, by name, what it cannot use whenever it starts; None when no end of a running job
    lets it start, so that nothing can delay it. `starts_in_s` is when it starts at the latest,
    None when unknown. `preempts`: low-priority attempts leave for it.
    """

    job: Waiting
    spare: Amounts | None
    starts_in_s: float | None = None
    preempts: bool = False


@dataclass(frozen=True)
class Decision:
    """Which jobs start now, and which wait at the head of their lines."""

    starts: tuple[Waiting, ...] = ()
    heads: tuple[Head, ...] = ()


def priority_rank_of(tier: str, priority: str) -> int:
    """The number by which jobs are sorted; the smallest comes first."""
    return PRIORITY_RANKS[priority] + (SPOT_RANK if tier == "spot" else 0)


def priority_of(priority_rank: int) -> str:
    return {number: priority for priority, number in PRIORITY_RANKS.items()}[
        priority_rank % SPOT_RANK
    ]


def sort_key(job: Waiting) -> tuple[bool, int, int]:
    """Dedicated ones first, then by priority, then by submission."""
    return (job.low, job.priority_rank, job.id)


def fits(free: Amounts, needs: Amounts) -> bool:
    return all(free.get(name, UNBOUNDED) >= amount for name, amount in needs.items())


def less(free: Amounts, taken: Amounts) -> dict[str, int]:
    """What is left of `free`; names that are not limited stay so."""
    return {name: amount - taken.get(name, 0) for name, amount in free.items()}


def more(free: Amounts, returned: Amounts) -> dict[str, int]:
    return {name: amount + returned.get(name, 0) for name, amount in free.items()}


def ends_in_s(limit_s: float, ran_s: float) -> float | None:
    """When an attempt that started `ran_s` ago ends at the latest; None when unknown."""
    if not limit_s:
        return None
    left_s = limit_s + MARGIN_S - ran_s
    # Past its limit, the limit says nothing.
    return left_s if left_s > 0 else None


def head(job: Waiting, free: Amounts, running: Sequence[Running]) -> Head:
    """What must be left for a job that cannot start now."""
    freed = more(
        free, _sum(candidate.holds for candidate in running if candidate.low or candidate.leaving)
    )
    preempts = not job.low and not fits(free, job.needs) and fits(freed, job.needs)
    return Head(job, spare(job.needs, free, running), starts_in_s(job, free, running), preempts)


def spare(needs: Amounts, free: Amounts, running: Iterable[Running]) -> dict[str, int] | None:
    """By name, the least that is left over at any moment at which `needs` are free.

    Which jobs end first is unknown, so every set of them that frees enough is considered. None
    when even all together do not.
    """
    holdings = [candidate.holds for candidate in running]
    least: dict[str, int] = {}
    for name, needed in needs.items():
        if name not in free:
            continue
        over = _least_over(
            needed - free[name], [candidate[name] for candidate in holdings if candidate.get(name)]
        )
        if over is None:
            return None
        least[name] = over
    return least


def _least_over(missing: int, amounts: Sequence[int]) -> int | None:
    """The smallest sum of some of `amounts` that is at least `missing`, less `missing`."""
    if missing <= 0:
        return -missing
    # Bit n of `sums` says that n is a sum of some of them.
    sums = 1
    for amount in amounts:
        sums |= sums << amount
    enough = sums >> missing
    return (enough & -enough).bit_length() - 1 if enough else None


def starts_in_s(job: Waiting, free: Amounts, running: Iterable[Running]) -> float | None:
    """When the job can start at the latest, by the limits of the running jobs."""
    endings = sorted(
        (
            (candidate.ends_in_s, candidate.holds)
            for candidate in running
            if candidate.ends_in_s is not None
        ),
        key=lambda pair: pair[0],
    )
    at_s, left = 0.0, dict(free)
    for ends_s, holds in endings:
        if fits(left, job.needs):
            break
        at_s, left = ends_s, more(left, holds)
    return at_s if fits(left, job.needs) else None


def concerns(head: Head, low: bool) -> bool:
    """Whether this head restricts such a job: a low head does not restrict dedicated jobs, and a
    dedicated head restricts low jobs only if it preempts.
    """
    if head.spare is None or (head.job.low and not low):
        return False
    return head.job.low or not low or head.preempts


def may_pass(job: Waiting, head: Head) -> bool:
    """Whether `job` may start while `head` waits in front of it."""
    if not concerns(head, job.low):
        return True
    assert head.spare is not None
    if all(head.spare.get(name, UNBOUNDED) >= amount for name, amount in job.needs.items()):
        return True
    return 0 < job.limit_s <= longest_limit_s(head)


def longest_limit_s(head: Head) -> float:
    """The limit of jobs that end before this one starts; 0 if there is no such limit."""
    if head.starts_in_s is None or head.preempts:
        return 0.0
    return max(0.0, head.starts_in_s - MARGIN_S)


def most_nodes(per_node: Amounts, left: Amounts) -> int:
    """How many nodes of a cluster fit into what is left."""
    counts = [left[name] // amount for name, amount in per_node.items() if amount and name in left]
    return max(0, min(counts, default=UNBOUNDED))


def decide(queue: Iterable[Waiting], capacity: Amounts, running: Sequence[Running]) -> Decision:
    """Go through the whole queue: which jobs start now, and which is the head of its line.

    The first job of each line that cannot start is its head, of low jobs and of the others.
    """
    now = list(running)
    free = less(capacity, _sum(candidate.holds for candidate in now))
    starts: list[Waiting] = []
    heads: list[Head] = []
    for job in sorted(queue, key=sort_key):
        if fits(free, job.needs) and all(may_pass(job, head) for head in heads):
            starts.append(job)
            free = less(free, job.needs)
            now.append(started(job))
            heads = [head(candidate.job, free, now) for candidate in heads]
        elif (job.line, job.low) not in {
            (candidate.job.line, candidate.job.low) for candidate in heads
        }:
            heads.append(head(job, free, now))
    return Decision(tuple(starts), tuple(heads))


def started(job: Waiting) -> Running:
    """What a job that starts now holds."""
    return Running(job.needs, ends_in_s(job.limit_s, 0.0), job.low)


def most_that_may_start(job: Waiting, free: Amounts, heads: Iterable[Head], each: Amounts) -> int:
    """How many nodes an elastic job could start with now, beside the heads in front of it.

    Args:
        each: what one of its nodes takes.
    """
    limit = most_nodes(each, free)
    for head in heads:
        if concerns(head, job.low) and not 0 < job.limit_s <= longest_limit_s(head):
            assert head.spare is not None
            limit = min(limit, most_nodes(each, head.spare))
    return limit


def times(per_node: Amounts, count: int) -> dict[str, int]:
    return {name: amount * count for name, amount in per_node.items()}


def victims(
    needs: Amounts, free: Amounts, candidates: Sequence[tuple[str, Running, float]]
) -> list[str] | None:
    """Whom to preempt so that `needs` fit: the fewest, and of those the latest started.

    Args:
        candidates: the id, what it holds, and the start time, of each that may be preempted.

    Returns:
        Their ids; None when all together are not enough.
    """
    useful = [
        candidate for candidate in candidates if any(candidate[1].holds.get(name) for name in needs)
    ]
    latest_first = sorted(useful, key=lambda candidate: -candidate[2])
    chosen: list[tuple[str, Running, float]] = []
    left = dict(free)
    while not fits(left, needs):
        missing = {name: needs[name] - left[name] for name in needs if name in left}
        rest = [candidate for candidate in latest_first if candidate not in chosen]
        helpful = [candidate for candidate in rest if _helps(candidate[1], missing)]
        if not helpful:
            return None
        # max takes the first of equals: the latest started.
        best = max(helpful, key=lambda candidate: _share(candidate[1], missing))
        chosen.append(best)
        left = more(left, best[1].holds)
    return [candidate[0] for candidate in _without_needless(chosen, needs, left)]


def _helps(candidate: Running, missing: Amounts) -> bool:
    return any(amount > 0 and candidate.holds.get(name) for name, amount in missing.items())


def _share(candidate: Running, missing: Amounts) -> float:
    """How much of what is missing it frees, over all names."""
    return math.fsum(
        min(candidate.holds.get(name, 0), amount) / amount
        for name, amount in missing.items()
        if amount > 0
    )


def _without_needless(
    chosen: Sequence[tuple[str, Running, float]], needs: Amounts, left: Amounts
) -> list[tuple[str, Running, float]]:
    """Keep only the needed ones: the earliest started are spared first."""
    remaining = list(chosen)
    for candidate in sorted(chosen, key=lambda candidate: candidate[2]):
        without = less(left, candidate[1].holds)
        if fits(without, needs):
            remaining.remove(candidate)
            left = without
    return remaining


def _sum(amounts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for candidate in amounts:
        for name, amount in candidate.items():
            total[name] = total.get(name, 0) + amount
    return total
