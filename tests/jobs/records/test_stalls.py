"""What is said of a job whose ranks stand still, by what its nodes report."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from torchyard.jobs.attempts import root_cause
from torchyard.jobs.records import stalls
from torchyard.jobs.records.types import AttemptNode, JobError, NodeState

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)


def standing(
    number: int, *ranks: dict[str, Any], quiet_s: float = 31.0, computes: bool = False
) -> AttemptNode:
    stand = stalls.read({"quiet_s": quiet_s, "ranks": list(ranks), "computes": computes})
    return AttemptNode(
        "a", number, 1, NOW, NodeState.RUNNING, interactive={stalls.STAND: stand}
    )  # fmt: skip


def calls(*names: str, done: bool = False) -> list[dict[str, Any]]:
    listed = [
        {"number": number, "name": name, "shapes": "[4] float", "done": number < len(names) or done,
         "where": f"train.py line {number}"}
        for number, name in enumerate(names, 1)
    ]  # fmt: skip
    return [{"name": "0", "ranks": [], "calls": listed}]


def test_a_job_stands_only_if_all_of_its_nodes_do() -> None:
    waits = {"rank": 0, "where": "train.py line 2", "groups": calls("broadcast", "all_reduce")}
    late = {"rank": 1, "where": "data.py line 9", "groups": calls("broadcast", done=True)}
    assert stalls.message_of([standing(0, waits), standing(1, late, quiet_s=0.0)]) == ""
    said = stalls.message_of([standing(0, waits), standing(1, late, quiet_s=40.0)])
    assert said.startswith("rank 1 on node 1 has not called all_reduce number 2")
    assert said.endswith("stands at data.py line 9; no progress for 31 s")


def test_ranks_that_compute_stand_only_if_another_waits_for_them() -> None:
    busy = {"rank": 1, "where": "data.py line 9"}
    assert stalls.message_of([standing(0, {"rank": 0, "where": "a.py line 1"}, busy)])
    computing = standing(1, busy, computes=True)
    assert not stalls.message_of([standing(0, {"rank": 0, "where": "a.py line 1"}), computing])
    waits = {"rank": 0, "where": "a.py line 1", "waits_in": "recv"}
    assert stalls.message_of([standing(0, waits), computing])


def test_the_node_of_the_blamed_rank_is_named_where_there_are_several() -> None:
    waits = {"rank": 0, "where": "train.py line 2", "groups": calls("all_reduce")}
    late = {"rank": 1, "where": "data.py line 9"}
    assert "on node" not in stalls.message_of([standing(0, waits, late)])
    assert "rank 1 on node 1 has not called" in stalls.message_of(
        [standing(0, waits), standing(1, late)]
    )


def test_the_rank_that_did_not_join_is_named() -> None:
    ranks = [{"rank": number, "where": "a.py line 3"} for number in (1, 2)]
    apart = {
        "rank": 3,
        "where": "a.py line 3",
        "waits_in": "init_process_group",
        "not_joined": True,
    }
    error = JobError("rendezvous_timeout", "rank 0 failed", "", {"consequence": True})
    node = root_cause.failed_node([failed(standing(0, *ranks, apart, quiet_s=0.0), error)])
    assert node is not None and node.error is not None
    assert node.error.message.startswith("rank 3 has not come to where the other ranks meet; it ")
    two = [apart, {**apart, "rank": 2}]
    assert stalls.not_joined([standing(0, *two)]) is None


def test_without_collectives_the_one_rank_that_is_elsewhere_is_named() -> None:
    ranks = [{"rank": number, "where": "ring.py line 7"} for number in (0, 1, 3)]
    said = stalls.message_of([standing(0, *ranks, {"rank": 2, "where": "train.py line 4 in load"})])
    assert said.startswith("rank 2 stands at train.py line 4 in load, the others stand at")


def test_two_ranks_at_two_places_are_both_told_of() -> None:
    recv = {"rank": 0, "where": "a.py line 1", "waits_in": "recv"}
    said = stalls.message_of([standing(0, recv, {"rank": 1, "where": "a.py line 3"})])
    assert said.startswith("rank 0 waits in recv at a.py line 1, rank 1 stands at a.py line 3")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ranks": 3},
        {"quiet_s": "x", "ranks": [1, {"rank": []}]},
        {"quiet_s": 9.0, "ranks": [{"groups": {}}, {"rank": 2**40}]},
    ],
)
def test_what_a_worker_makes_up_is_read_as_far_as_it_goes(body: dict[str, Any]) -> None:
    stand = stalls.read(body)
    node = AttemptNode("a", 0, 1, NOW, NodeState.RUNNING, interactive={stalls.STAND: stand})
    stalls.message_of([node])
    stalls.compared([node])


def failed(node: AttemptNode, error: JobError) -> AttemptNode:
    return replace(node, state=NodeState.EXITED, exit_code=1, error=error, failed_at=NOW)


def test_a_timed_out_collective_is_led_by_the_rank_that_did_not_come() -> None:
    waits = {"rank": 0, "ended": True, "groups": calls("broadcast", "all_reduce", done=True)}
    late = {"rank": 1, "where": "data.py line 9", "groups": calls("broadcast", done=True)}
    error = JobError("collective_timeout", "rank 0 timed out", "hint", {"consequence": True})
    node = root_cause.failed_node([failed(standing(0, waits, late, quiet_s=0.0), error)])
    assert node is not None and node.error is not None
    assert node.error.code == "collective_timeout"
    assert node.error.message.startswith("rank 1 has not called all_reduce number 2")
    assert node.error.message.endswith("; then: rank 0 timed out")
    assert (node.error.details["rank"], node.error.details["node"]) == (1, 0)


def test_another_failure_than_waiting_stays_as_it_is() -> None:
    waits = {"rank": 0, "groups": calls("broadcast", "all_reduce")}
    late = {"rank": 1, "groups": calls("broadcast", done=True)}
    error = JobError("exception", "rank 1 raised ValueError", "", {"rank": 1})
    node = root_cause.failed_node([failed(standing(0, waits, late, quiet_s=0.0), error)])
    assert node is not None and node.error == error


def test_a_wrong_size_is_told_by_who_sent_it() -> None:
    ranks = [
        {"rank": number, "groups": [{"name": "0", "calls": [
            {"number": 1, "name": "all_reduce", "shapes": shapes, "where": "a.py line 5"}]}]}
        for number, shapes in ((1, "[6] double"), (2, "[6] float"))
    ]  # fmt: skip
    said = "[enforce fail] op.preamble.length <= op.nbytes. 8 vs 4. Received data size"
    details = {"rank": 0, "exception": said, "called": "all_reduce"}
    error = JobError("collective_mismatch", "rank 0 was killed", "hint", details)
    node = root_cause.failed_node([failed(standing(0, *ranks, quiet_s=0.0), error)])
    assert node is not None and node.error is not None
    assert node.error.code == "collective_mismatch"
    assert node.error.details["ranks"] == [1]
    assert node.error.message.startswith("rank 1 called all_reduce with [6] double")


def test_of_two_that_waited_a_lost_connection_tells_least() -> None:
    lost = JobError("peer_lost", "connection closed", "", {"consequence": True})
    late = JobError("collective_timeout", "timed out", "", {"consequence": True})
    nodes = [failed(standing(0), lost), failed(standing(1), late)]
    node = root_cause.failed_node(nodes)
    assert node is not None and node.node == 1


def test_a_job_whose_first_node_goes_on_is_not_looked_at_closer() -> None:
    rank = {"rank": 0, "where": "a.py line 1"}
    assert stalls.may_stand(standing(0, rank))
    assert not stalls.may_stand(standing(0, rank, quiet_s=0.0))
    assert stalls.may_stand(replace(standing(0, rank, quiet_s=0.0), state=NodeState.EXITED))
    assert not stalls.may_stand(None)


def test_a_thread_that_failed_makes_no_rank_the_odd_one() -> None:
    failed = "a thread of rank 1 failed: KeyError: 'x' (reader.py line 4, in read)"
    ranks = [{"rank": rank, "where": "a.py line 1"} for rank in range(3)]
    ranks[1]["failed_before"] = failed
    node = standing(0, *ranks)
    assert stalls.compared([node]) is None
    assert stalls.message_of([node]) == (
        f"all ranks stand at a.py line 1, after {failed}; no progress for 31 s"
    )
