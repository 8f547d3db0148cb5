"""When the ranks of a node count as standing still."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torchyard.worker.diagnosis import rank_calls
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.diagnosis.stall_watch import Positions, StallWatch
from torchyard.worker.launch.ranks import Rank
from torchyard.worker.system import activity
from torchyard.worker.system.activity import Activity
from torchyard.worker.system.memory_kills import MemoryKills

LIMIT_S = 30.0
RUNNING = {10: Rank(0, 0, Path("log"), "log"), 11: Rank(1, 1, Path("log"), "log")}


class Site:
    """A node whose ranks do what the test says, second by second."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.processor_s = 0.0
        self.printed = self.moved_bytes = 0
        self.function = "fit"
        self.silent = 0
        self.calls: list[dict[str, Any]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(activity, "measure", self._measure)
        monkeypatch.setattr(rank_calls, "ask", lambda *_, **__: (list(self.calls), self.silent))
        context = DiagnosisContext(0, True, folder / "work", folder / "errors", MemoryKills())
        self.watch = StallWatch(
            context,
            LIMIT_S,
            lambda: self.printed,
            Positions(self._positions, lambda running: {0: ("a.py", self.function)}),
            self._post,
            lambda: self.now,
        )

    def run(
        self, seconds: float, *, computes: bool = False, moves: bool = False,
        prints_every_s: float = 0.0, functions: int = 1,
    ) -> None:  # fmt: skip
        end = self.now + seconds
        while self.now < end:
            self.now += 5.0
            self.processor_s += 4.0 if computes else 0.001
            self.moved_bytes += 10 << 20 if moves else 0
            self.function = f"f{int(self.now / 5) % functions}"
            if prints_every_s and self.now % prints_every_s == 0:
                self.printed += 1
            self.watch.check(RUNNING)

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def _measure(self, roots: Mapping[int, Rank]) -> dict[int, Activity]:
        return {root: Activity(self.processor_s, self.moved_bytes, False) for root in roots}

    def _positions(self, running: Mapping[int, Rank], reason: str) -> list[dict[str, Any]]:
        return [{"rank": rank.rank, "where": "a.py line 1"} for rank in running.values()]

    def _post(self, kind: str, **body: Any) -> None:
        self.events.append((kind, body))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_ranks_that_do_nothing_are_reported_once_and_again_when_they_go_on(site: Site) -> None:
    site.run(10, computes=True)
    site.run(40)
    assert site.kinds() == ["ranks_stand"]
    stand = site.events[0][1]
    assert LIMIT_S <= stand["quiet_s"] <= LIMIT_S + 10
    assert [each["rank"] for each in stand["ranks"]] == [0, 1]
    site.run(300)
    assert site.kinds() == ["ranks_stand"]
    site.run(10, computes=True)
    assert site.kinds() == ["ranks_stand", "ranks_go_on"]


@pytest.mark.parametrize(
    "shape",
    [
        {"functions": 7},
        {"moves": True},
        {"prints_every_s": 250},
    ],
)
def test_hours_of_a_compilation_or_an_evaluation_are_not_reported(
    site: Site, shape: dict[str, Any]
) -> None:
    site.run(10 * 3600, computes=True, **shape)
    assert not site.events


@pytest.mark.parametrize("functions", [1, 3])
def test_a_function_that_never_ends_is_reported_after_a_longer_time(
    site: Site, functions: int
) -> None:
    site.run(100, computes=True, prints_every_s=5)
    site.run(290, computes=True, functions=functions)
    assert not site.events
    site.run(60, computes=True, functions=functions)
    assert site.kinds() == ["ranks_stand"]
    assert site.events[0][1]["computes"]
    site.run(3600, computes=True)
    assert site.kinds() == ["ranks_stand"]
    site.run(5, computes=True, prints_every_s=5)
    assert site.kinds() == ["ranks_stand", "ranks_go_on"]


def test_a_rank_that_comes_to_wait_for_a_reported_one_is_reported_anew(site: Site) -> None:
    call = {"number": 1, "name": "gloo:barrier", "done": True}
    site.calls = [{"rank": "0", "groups": [{"name": "0", "calls": [call]}]}]
    site.run(100, computes=True, prints_every_s=5)
    site.run(400, computes=True)
    assert site.kinds() == ["ranks_stand"]
    site.calls = [{"rank": "0", "groups": [{"name": "0", "calls": [{**call, "number": 2}]}]}]
    site.run(400, computes=True)
    assert site.kinds() == ["ranks_stand", "ranks_go_on", "ranks_stand"]


def test_a_rank_that_answers_nothing_while_it_computes_is_reported_sooner(site: Site) -> None:
    site.run(100, computes=True, prints_every_s=5)
    site.calls = [{"rank": "0", "groups": []}]
    site.silent = 1
    site.run(25, computes=True, functions=7)
    assert not site.events
    site.run(50, computes=True, functions=7)
    assert site.kinds() == ["ranks_stand"]


def test_a_job_that_prints_now_and_then_is_not_reported(site: Site) -> None:
    site.run(3600, prints_every_s=25)
    assert not site.events


def test_a_pause_must_be_longer_than_three_times_the_longest_before(site: Site) -> None:
    site.run(5, prints_every_s=5)
    for _ in range(5):
        site.run(25)
        site.run(15, computes=True)
    site.run(70)
    assert not site.events
    site.run(40)
    assert site.kinds() == ["ranks_stand"]


def test_pauses_while_packages_are_imported_are_not_the_jobs_pace(site: Site) -> None:
    for _ in range(5):
        site.run(25)
        site.run(15, computes=True)
    site.run(40)
    assert site.kinds() == ["ranks_stand"]


def test_steps_that_cost_nothing_are_seen_by_their_collectives(site: Site) -> None:
    for number in range(1, 100):
        call = {"number": number, "name": "gloo:all_reduce", "done": True}
        site.calls = [{"rank": "0", "groups": [{"name": "0", "calls": [call]}]}]
        site.run(20)
    assert not site.events


def test_a_thread_that_wakes_up_now_and_then_is_no_sign_of_life(site: Site) -> None:
    site.run(10, computes=True)
    for _ in range(4):
        site.run(10)
        site.run(5, computes=True)
    assert site.kinds() == ["ranks_stand"]


def test_the_last_collectives_have_lines_relative_to_the_job(site: Site, tmp_path: Path) -> None:
    call = {"number": 1, "name": "gloo:barrier", "where": f"{tmp_path}/work/a.py line 2", "x": []}
    shown = {"number": 1, "name": "barrier", "shapes": "", "where": "a.py line 2", "done": False}
    site.calls = [
        {"rank": "1", "ended": True, "where": f"{tmp_path}/work/a.py line 3",
         "groups": [{"name": "0", "calls": [call]}, "nonsense"]},
        {"rank": "-1", "groups": []},
        {"rank": None},
    ]  # fmt: skip
    site.watch.ending([{"rank": 0, "where": "b.py line 1"}])
    ((kind, body),) = site.events
    assert (kind, body["quiet_s"]) == ("ranks_stand", 0.0)
    assert body["ranks"] == [
        {"rank": 0, "where": "b.py line 1"},
        {"rank": 1, "ended": True, "where": "a.py line 3",
         "groups": [{"name": "0", "ranks": [], "calls": [shown]}], "groups_made": 0},
    ]  # fmt: skip


@pytest.mark.parametrize(("earlier_s", "is_told"), [(LIMIT_S + 2, True), (LIMIT_S + 600, False)])
def test_a_thread_that_failed_as_the_pause_began_is_told(
    earlier_s: float, is_told: bool, site: Site, tmp_path: Path
) -> None:
    folder = tmp_path / "errors" / "rank-1"
    folder.mkdir(parents=True)
    at = time.time() - earlier_s
    body = {
        "kind": "thread", "type": "KeyError", "message": "'x'", "at": at, "started": at - 9,
        "traceback": f'  File "{tmp_path}/work/reader.py", line 4, in read\nKeyError: \'x\'\n',
        "pid": 7, "parent": 1, "status": None, "said": None, "callers": [],
    }  # fmt: skip
    (folder / "1.json").write_text(json.dumps(body))
    site.run(60.0, prints_every_s=5.0)
    site.run(LIMIT_S + 10)
    ((kind, event),) = site.events
    said = "a thread of rank 1 failed: KeyError: 'x' (reader.py line 4, in read)"
    assert kind == "ranks_stand"
    assert [rank["where"] for rank in event["ranks"]] == ["a.py line 1"] * 2
    assert [rank.get("failed_before") for rank in event["ranks"]] == [
        None, said if is_told else None
    ]  # fmt: skip
