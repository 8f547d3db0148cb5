"""Who is next, and who may pass whom.

Owns: the order of the queue, what a waiting job is held back by, back-fill, as pure functions.
Leaves: rows to queue_store.py, holding nodes to scheduling/claiming.py, who makes room to
scheduling/preemption.py.
Always: whoever passes a job that waits takes only what that one could not use whenever it starts,
or is bound to end before the time at which that one is bound to start. Why so: docs/decisions/0016.

Everything that is bounded has a name and whole numbers: a cluster's nodes, a machine's devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Amounts = Mapping[str, int]

# By `queue_settings.priority`; a spot job comes after all others of its cluster.
PRIORITY_RANKS = {"high": 0, "medium": 1, "low": 2}
SPOT_RANK = 10
# Beyond its `limits.timeout` a job keeps its nodes while it starts and hands in what it made.
MARGIN_S = 120.0
UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Waiting:
    """A queued job. `limit_s` is the longest it may run, 0 when nobody knows.

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
    """What an attempt holds. `ends_in_s` is when it is bound to have ended, None when unknown.

    One that was told to end, for whatever reason, is `leaving`.
    """

    holds: Amounts
    ends_in_s: float | None = None
    low: bool = False
    leaving: bool = False


@dataclass(frozen=True)
class Head:
    """A job that waits, and what must be left for it.

    `spare` is what it can't use by each name, whenever it starts; None when no end of a running
    job lets it start, so that nobody can hold it up. `starts_in_s` is when it is bound to start,
    None when unknown. `takes_room`: low ones leave for it.
    """

    job: Waiting
    spare: Amounts | None
    starts_in_s: float | None = None
    preempts: bool = False


@dataclass(frozen=True)
class Decision:
    """What one look at a queue says."""

    starts: tuple[Waiting, ...] = ()
    heads: tuple[Head, ...] = ()


def priority_rank_of(tier: str, priority: str) -> int:
    """The number by which jobs are sorted; small ones come first."""
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
    """What is left of `free`; names that are not bounded stay so."""
    return {name: amount - taken.get(name, 0) for name, amount in free.items()}


def more(free: Amounts, returned: Amounts) -> dict[str, int]:
    return {name: amount + returned.get(name, 0) for name, amount in free.items()}


def ends_in_s(limit_s: float, ran_s: float) -> float | None:
    """When an attempt that was begun `ran_s` ago is bound to end; None: nobody knows."""
    if not limit_s:
        return None
    left_s = limit_s + MARGIN_S - ran_s
    # One that should have ended has shown that its limit says nothing.
    return left_s if left_s > 0 else None


def head(job: Waiting, free: Amounts, running: Sequence[Running]) -> Head:
    """What has to be left for a job that can't start now."""
    freed = more(
        free, _sum(candidate.holds for candidate in running if candidate.low or candidate.leaving)
    )
    takes_room = not job.low and not fits(free, job.needs) and fits(freed, job.needs)
    return Head(job, spare(job.needs, free, running), starts_in_s(job, free, running), takes_room)


def spare(needs: Amounts, free: Amounts, running: Iterable[Running]) -> dict[str, int] | None:
    """By name, the least that is over at any moment at which `needs` could be had.

    Which jobs end first is unknown, so every set of them that frees enough is looked at. None
    when even all together don't.
    """
    held = [candidate.holds for candidate in running]
    least: dict[str, int] = {}
    for name, needed in needs.items():
        if name not in free:
            continue
        over = _least_over(
            needed - free[name], [candidate[name] for candidate in held if candidate.get(name)]
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
    """When the job can start at the latest, by the limits of those that run."""
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
    """Whether such a job has to mind this head: dedicated ones mind no low one, and low ones
    only a dedicated one that they are about to leave room for.
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
    """The limit of those that are bound to have ended when this one starts; 0: of none."""
    if head.starts_in_s is None or head.preempts:
        return 0.0
    return max(0.0, head.starts_in_s - MARGIN_S)


def most_nodes(per_node: Amounts, left: Amounts) -> int:
    """How many nodes of a cluster can be had from what is left."""
    counts = [left[name] // amount for name, amount in per_node.items() if amount and name in left]
    return max(0, min(counts, default=UNBOUNDED))


def decide(queue: Iterable[Waiting], capacity: Amounts, running: Sequence[Running]) -> Decision:
    """One look at the whole queue: who starts now, and who is the head of its line.

    The first of each line that can't start is its head, of low ones and of the others.
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


def times(per_node: Amounts, count: int) -> dict[str, int]:
    return {name: amount * count for name, amount in per_node.items()}


def victims(
    needs: Amounts, free: Amounts, candidates: Sequence[tuple[str, Running, float]]
) -> list[str] | None:
    """Who has to go so that `needs` can be had: the fewest, and of those the latest started.

    Args:
        candidates: an id, what it holds, and the time of its start, of each that may be told.

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
    """How much of what is missing it brings, over all names."""
    return math.fsum(
        min(candidate.holds.get(name, 0), amount) / amount
        for name, amount in missing.items()
        if amount > 0
    )


def _without_needless(
    chosen: Sequence[tuple[str, Running, float]], needs: Amounts, left: Amounts
) -> list[tuple[str, Running, float]]:
    """Those that are needed: the earliest started stay first."""
    kept = list(chosen)
    for candidate in sorted(chosen, key=lambda candidate: candidate[2]):
        without = less(left, candidate[1].holds)
        if fits(without, needs):
            kept.remove(candidate)
            left = without
    return kept


def _sum(amounts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for candidate in amounts:
        for name, amount in candidate.items():
            total[name] = total.get(name, 0) + amount
    return total
