"""The order of the queue and backfill, against a model that plays every job to its end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.jobs.admission import queue
from torchyard.jobs.admission.queue import MARGIN_S, Running, Waiting

NODES = "nodes of w/c"


@dataclass(frozen=True)
class Play:
    """A job of the model: when it comes, what it takes, how long it really runs."""

    id: int
    nodes: int
    runs_s: float
    limit_s: float = 0.0
    comes_s: float = 0.0

    def waiting(self) -> Waiting:
        return Waiting(self.id, "w/c", {NODES: self.nodes}, limit_s=self.limit_s)

    def bound_s(self) -> float:
        return self.limit_s + MARGIN_S if self.limit_s else float("inf")


def played(
    capacity: int, running: Sequence[Play], waiting: Sequence[Play], backfill: bool
) -> dict[int, float]:
    """When each job started: one decision whenever something ends or comes."""
    begun = {job.id: (0.0, job) for job in running}
    starts: dict[int, float] = {}
    queued = {job.id: job for job in waiting}
    moments = sorted({0.0, *(job.comes_s for job in waiting), *(job.runs_s for job in running)})
    while moments:
        now = moments.pop(0)
        going = [(at, job) for at, job in begun.values() if at + job.runs_s > now]
        runs = [
            Running({NODES: job.nodes}, queue.ends_in_s(job.limit_s, now - at)) for at, job in going
        ]
        here = [job.waiting() for job in queued.values() if job.comes_s <= now]
        decision = queue.decide(here, {NODES: capacity}, runs)
        chosen = list(decision.starts)
        if not backfill:
            first_head = min((head.job.id for head in decision.heads), default=1 << 60)
            chosen = [job for job in chosen if job.id < first_head]
        for job in chosen:
            play = queued.pop(job.id)
            starts[job.id] = now
            begun[job.id] = (now, play)
            moments = sorted({*moments, now + play.runs_s})
        assert sum(job.nodes for _, job in going) + sum(j.needs[NODES] for j in chosen) <= capacity
    return starts


BusySite = tuple[int, list[Play], list[Play]]


@st.composite
def sites(draw: st.DrawFn, limits: bool, to_the_end: bool = False) -> BusySite:
    """A cluster that is busy, a job that can't start, and others behind it."""
    capacity = draw(st.integers(2, 9))
    counter = itertools.count(1)

    def play(maximum: int, comes_s: float = 0.0) -> Play:
        limit_s = draw(st.sampled_from([0, 0, 50, 500, 5000])) if limits else 0
        bound_s = limit_s + MARGIN_S if limit_s else 4000.0
        runs_s = bound_s if to_the_end and limit_s else bound_s * draw(st.floats(0.01, 1.0))
        return Play(next(counter), draw(st.integers(1, maximum)), runs_s, limit_s, comes_s)

    running: list[Play] = []
    while sum(job.nodes for job in running) < capacity and draw(st.booleans()):
        running.append(play(capacity - sum(job.nodes for job in running)))
    behind = [play(capacity) for _ in range(draw(st.integers(1, 6)))]
    later = [play(capacity, draw(st.floats(0, 3000))) for _ in range(draw(st.integers(0, 4)))]
    return capacity, running, [*behind, *later]


@settings(max_examples=100, deadline=None)
@given(sites(limits=False))
def test_whatever_the_run_times_the_head_starts_no_later_than_without_backfill(
    site: BusySite,
) -> None:
    capacity, running, waiting = site
    head = waiting[0].id
    filled = played(capacity, running, waiting, backfill=True)
    assert filled[head] <= played(capacity, running, waiting, backfill=False)[head]
    assert len(filled) == len(waiting), "all of them start some day"


@settings(max_examples=100, deadline=None)
@given(sites(limits=True, to_the_end=True))
def test_jobs_that_use_up_their_limits_do_not_delay_the_head(site: BusySite) -> None:
    capacity, running, waiting = site
    head = waiting[0].id
    filled = played(capacity, running, waiting, backfill=True)[head]
    assert filled <= played(capacity, running, waiting, backfill=False)[head] + 1e-6


@settings(max_examples=100, deadline=None)
@given(sites(limits=True))
def test_the_time_that_the_head_was_given_is_kept(site: BusySite) -> None:
    capacity, running, waiting = site
    runs = [Running({NODES: job.nodes}, queue.ends_in_s(job.limit_s, 0)) for job in running]
    free = {NODES: capacity - sum(job.nodes for job in running)}
    promised = queue.starts_in_s(waiting[0].waiting(), free, runs)
    if promised is not None:
        started = played(capacity, running, waiting, backfill=True)[waiting[0].id]
        assert started <= promised + 1e-6


@settings(max_examples=100, deadline=None)
@given(sites(limits=True))
def test_nothing_idles_while_a_job_that_may_run_fits(site: BusySite) -> None:
    capacity, running, waiting = site
    runs = [Running({NODES: job.nodes}, queue.ends_in_s(job.limit_s, 0)) for job in running]
    jobs = [job.waiting() for job in waiting]
    decision = queue.decide(jobs, {NODES: capacity}, runs)
    now = [*runs, *map(queue.started, decision.starts)]
    again = queue.decide(
        [job for job in jobs if job not in decision.starts], {NODES: capacity}, now
    )
    assert again.starts == ()
    if not decision.heads:
        assert len(decision.starts) == len(jobs)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(-5, 40),
    st.lists(st.integers(1, 12), max_size=9),
)
def test_spare_amounts_equal_a_search_of_every_set(missing: int, amounts: list[int]) -> None:
    sums = [
        sum(some)
        for length in range(len(amounts) + 1)
        for some in itertools.combinations(amounts, length)
    ]
    enough = [total - missing for total in sums if total >= missing]
    assert queue._least_over(missing, amounts) == min(enough, default=None)


def _waiting(id: int, nodes: int, **more: object) -> Waiting:
    return replace(Waiting(id, "w/c", {NODES: nodes}), **more)  # type: ignore[arg-type]


def _ids(decision: queue.Decision) -> list[int]:
    return [job.id for job in decision.starts]


def test_priority_comes_before_submission() -> None:
    jobs = [
        _waiting(1, 1, priority_rank=queue.priority_rank_of("standard", "low")),
        _waiting(2, 1),
        _waiting(3, 1, priority_rank=queue.priority_rank_of("premium", "high")),
        _waiting(4, 1, priority_rank=queue.priority_rank_of("spot", "high"), low=True),
    ]
    assert _ids(queue.decide(jobs, {NODES: 3}, [])) == [3, 2, 1]


def test_a_job_passes_beside_the_nodes_that_the_head_waits_for() -> None:
    running = [Running({NODES: 3})]
    jobs = [_waiting(1, 2), _waiting(2, 1)]
    # Once the three are free there is one more than the head takes.
    assert _ids(queue.decide(jobs, {NODES: 4}, running)) == [2]
    assert _ids(queue.decide([_waiting(1, 4), _waiting(2, 1)], {NODES: 4}, running)) == []


def test_a_job_passes_that_is_bound_to_end_in_time() -> None:
    running = [Running({NODES: 3}, ends_in_s=1000)]
    head = _waiting(1, 4)
    assert _ids(queue.decide([head, _waiting(2, 1, limit_s=880)], {NODES: 4}, running)) == [2]
    assert _ids(queue.decide([head, _waiting(2, 1, limit_s=881)], {NODES: 4}, running)) == []
    unknown = [Running({NODES: 3})]
    assert _ids(queue.decide([head, _waiting(2, 1, limit_s=1)], {NODES: 4}, unknown)) == []


def test_a_job_past_its_limit_promises_nothing() -> None:
    assert queue.ends_in_s(100, 30) == 70 + MARGIN_S
    assert queue.ends_in_s(100, 100 + MARGIN_S) is None
    assert queue.ends_in_s(0, 5) is None


def test_a_head_that_can_never_start_delays_nobody() -> None:
    assert _ids(queue.decide([_waiting(1, 5), _waiting(2, 4)], {NODES: 4}, [])) == [2]


def test_clusters_that_share_nothing_do_not_wait_for_each_other() -> None:
    other = replace(_waiting(2, 1), line="w/d", needs={"nodes of w/d": 1})
    capacity = {NODES: 1, "nodes of w/d": 1}
    assert _ids(queue.decide([_waiting(1, 2), other], capacity, [])) == [2]


def test_clusters_that_share_devices_wait_for_each_other() -> None:
    capacity = {NODES: 4, "nodes of w/d": 4, "gpus": 4}
    running = [Running({"nodes of w/d": 1, "gpus": 1})]
    head = Waiting(1, "w/c", {NODES: 1, "gpus": 4})
    small = Waiting(2, "w/d", {"nodes of w/d": 1, "gpus": 1})
    assert _ids(queue.decide([head, small], capacity, running)) == []
    # A job without devices takes nothing from the head.
    plain = Waiting(3, "w/d", {"nodes of w/d": 1})
    assert _ids(queue.decide([head, small, plain], capacity, running)) == [3]
    assert _ids(queue.decide([head, plain], capacity, running)) == [3]


def test_low_priority_jobs_fill_gaps_until_a_dedicated_job_preempts_them() -> None:
    head = _waiting(1, 4)
    spot = _waiting(2, 1, low=True, priority_rank=queue.SPOT_RANK)
    assert _ids(queue.decide([head, spot], {NODES: 4}, [Running({NODES: 3})])) == [2]
    # Two jobs that may be preempted hold what the head needs: it gets it at once.
    low = [Running({NODES: 3}, low=True)]
    decision = queue.decide([head, spot], {NODES: 4}, low)
    assert _ids(decision) == []
    assert decision.heads[0].preempts


def _candidate(name: str, amount: int, at: float) -> tuple[str, Running, float]:
    return name, Running({"gpus": amount}, low=True), at


def test_victims_are_few_and_the_latest_started() -> None:
    free = {"gpus": 1}
    several = [_candidate("a", 1, 1), _candidate("b", 1, 2), _candidate("c", 1, 3)]
    assert queue.victims({"gpus": 2}, free, several) == ["c"]
    assert queue.victims({"gpus": 3}, free, several) == ["c", "b"]
    assert queue.victims({"gpus": 3}, free, [*several, _candidate("big", 2, 0)]) == ["big"]
    assert queue.victims({"gpus": 9}, free, several) is None
    assert queue.victims({"gpus": 1}, free, several) == []
    assert queue.victims({"gpus": 2}, free, [("x", Running({"cores": 9}), 1.0)]) is None


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(0, 4),
    st.lists(st.integers(1, 5), max_size=7),
    st.randoms(use_true_random=False),
)
def test_no_smaller_set_of_victims_would_do(
    needed: int, free: int, sizes: list[int], chance: random.Random
) -> None:
    candidates = [_candidate(str(n), size, chance.random()) for n, size in enumerate(sizes)]
    chosen = queue.victims({"gpus": needed}, {"gpus": free}, candidates)
    enough = [
        length
        for length in range(len(sizes) + 1)
        for some in itertools.combinations(sizes, length)
        if free + sum(some) >= needed
    ]
    assert (len(chosen) if chosen is not None else None) == min(enough, default=None)
