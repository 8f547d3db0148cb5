"""Why the ranks of a job stand still, or failed because one of them did not do as the others did.

Owns: putting together what the nodes report of their ranks, the sentence about a stall.
Leaves: noticing that a node stands to the workers, comparing collectives to shared/collectives.py,
which node's failure is the job's to attempts/root_cause.py.
Always: a job stands only if every node whose ranks run says so, and one that computes only if a
rank waits for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchyard.jobs.records.types import AttemptNode, NodeState
from torchyard.shared import collectives
from torchyard.shared.collectives import Finding, RankCalls
from torchyard.shared.plurals import plural

STAND = "stand"
_MOST_RANKS = 4096
_SHOWN_RANKS = 8
_TEXT = 300


@dataclass(frozen=True)
class _Rank:
    number: int
    where: str
    waits_in: str
    ended: bool
    not_joined: bool
    failed_before: str

    @property
    def stands(self) -> str:
        """Where it is, as a sentence about it goes on."""
        place = self.where or "an unknown place"
        if self.ended:
            return f"failed at {place}"
        return f"waits in {self.waits_in} at {place}" if self.waits_in else f"stands at {place}"


def read(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a node reports of its ranks, as it is kept."""
    quiet_s = body.get("quiet_s")
    ranks = body.get("ranks")
    return {
        "quiet_s": quiet_s if _is_seconds(quiet_s) else 0.0,
        "computes": body.get("computes") is True,
        "ranks": [_plain(rank) for rank in ranks[:_MOST_RANKS] if isinstance(rank, Mapping)]
        if isinstance(ranks, list)
        else [],
    }


def may_stand(first: AttemptNode | None) -> bool:
    """Whether the job may stand, by its first node: the others need not be read where that runs."""
    if first is None:
        return False
    return first.state is not NodeState.RUNNING or bool(_stand(first).get("quiet_s"))


def message_of(nodes: Sequence[AttemptNode]) -> str:
    """Who waits for whom, as one sentence; empty as long as any node of the job goes on."""
    stands = [(node.node, _stand(node)) for node in nodes if node.state is NodeState.RUNNING]
    if not stands or not all(stand.get("quiet_s") for _, stand in stands):
        return ""
    if any(stand.get("computes") for _, stand in stands) and not _somebody_waits(nodes):
        return ""  # nobody can tell a long computation from one without end
    quiet_s = min(stand["quiet_s"] for _, stand in stands)
    finding = compared(nodes)
    said = finding.sentence if finding else _positions(list(_ranks(nodes)))
    failed = next(filter(None, (rank.failed_before for rank in _ranks(nodes))), "")
    return f"{said}{', after ' if failed else ''}{failed}; no progress for {quiet_s:.0f} s"


def _somebody_waits(nodes: Sequence[AttemptNode]) -> bool:
    return any(rank.waits_in for rank in _ranks(nodes)) or any(
        calls and not calls[-1].done for rank in _calls(nodes) for calls in rank.groups.values()
    )


def compared(nodes: Sequence[AttemptNode]) -> Finding | None:
    """The rank that does something else than the others, by what all nodes report."""
    ranks = list(_ranks(nodes))
    calls = list(_calls(nodes))
    answered = {each.rank for each in calls}
    # One that gives no answer and waits for others, too, is not the one that they wait for.
    silent = [
        RankCalls(rank.number, {}, {}, rank.where)
        for rank in ranks
        if rank.number not in answered and not rank.waits_in
    ]
    finding = collectives.compare([*calls, *silent]) if calls else None
    return _with_node(finding or _odd_one(ranks), nodes)


def _with_node(finding: Finding | None, nodes: Sequence[AttemptNode]) -> Finding | None:
    """Naming the node of the rank that is to blame, where there are several."""
    if finding is None or len(nodes) < 2 or len(finding.ranks) != 1:
        return finding
    name = f"rank {finding.ranks[0]}"
    named = f"{name} on node {node_of(nodes, finding.ranks[0])}"
    return replace(finding, sentence=finding.sentence.replace(f"{name} ", f"{named} ", 1))


def compared_with_lost(
    nodes: Sequence[AttemptNode], lost: RankCalls, called: str, received: int, expected: int
) -> Finding | None:
    """As `compared`, where a rank ended that received another size than it expected."""
    return collectives.compare_with_lost(_calls(nodes), lost, called, received, expected)


def not_joined(nodes: Sequence[AttemptNode]) -> Finding | None:
    """The one rank that did not come to where the others had met."""
    apart = [rank for rank in _ranks(nodes) if rank.not_joined]
    if len(apart) != 1:
        return None
    rank = apart[0]
    finding = Finding(
        f"rank {rank.number} has not come to where the other ranks meet; it {rank.stands}",
        (rank.number,),
        "",
        rank.where,
    )
    return _with_node(finding, nodes)


def node_of(nodes: Sequence[AttemptNode], rank: int) -> int | None:
    """The node that a rank runs on."""
    return next((node.node for node in nodes for each in _stand_ranks(node)
                 if each.get("rank") == rank), None)  # fmt: skip


def _odd_one(ranks: Sequence[_Rank]) -> Finding | None:
    """The one rank that is elsewhere than all others, where those are at one line."""
    places = Counter(rank.where for rank in ranks if rank.where)
    if len(places) != 2 or places.total() < 3 or min(places.values()) != 1:
        return None
    (usual, _), (odd, _) = places.most_common(2)
    rank = next(rank for rank in ranks if rank.where == odd)
    others = next(rank for rank in ranks if rank.where == usual)
    return Finding(
        f"rank {rank.number} {rank.stands}, the others {_of_several(others.stands, ())}",
        (rank.number,),
        others.waits_in,
        rank.where,
    )


def _positions(ranks: Sequence[_Rank]) -> str:
    places: dict[str, list[int]] = {}
    for rank in sorted(ranks, key=lambda rank: rank.number):
        places.setdefault(rank.stands, []).append(rank.number)
    if len(places) == 1 and len(ranks) > 1:
        return f"all ranks {_of_several(next(iter(places)), ())}"
    parts = [
        f"{plural('rank', len(numbers))} {', '.join(map(str, numbers[:_SHOWN_RANKS]))}"
        f"{' and others' if len(numbers) > _SHOWN_RANKS else ''} {_of_several(stands, numbers)}"
        for stands, numbers in list(places.items())[:_SHOWN_RANKS]
    ]
    return ", ".join(parts) or "no rank answers"


def _of_several(stands: str, ranks: Sequence[int]) -> str:
    verb, _, rest = stands.partition(" ")
    return stands if len(ranks) == 1 else f"{verb.removesuffix('s')} {rest}"


def _ranks(nodes: Sequence[AttemptNode]) -> list[_Rank]:
    return [
        _Rank(
            rank["rank"],
            str(rank.get("where") or ""),
            str(rank.get("waits_in") or ""),
            rank.get("ended") is True,
            rank.get("not_joined") is True,
            str(rank.get("failed_before") or ""),
        )
        for node in nodes
        for rank in _stand_ranks(node)
        if isinstance(rank.get("rank"), int)
    ]


def _calls(nodes: Sequence[AttemptNode]) -> list[RankCalls]:
    found = []
    for node in nodes:
        for rank in _stand_ranks(node):
            if isinstance(rank.get("rank"), int) and "groups" in rank:
                where = str(rank.get("where") or "")
                found.append(collectives.from_json(rank["rank"], rank, where))
    return found


def _stand(node: AttemptNode) -> dict[str, Any]:
    return (node.interactive or {}).get(STAND) or {}


def _stand_ranks(node: AttemptNode) -> list[dict[str, Any]]:
    return _stand(node).get("ranks") or []


def _plain(rank: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with only the keys that are read, whatever the worker sent."""
    number = rank.get("rank")
    return {
        "rank": number if isinstance(number, int) and 0 <= number < 2**31 else None,
        "where": str(rank.get("where") or "")[:_TEXT],
        "waits_in": str(rank.get("waits_in") or "")[:_TEXT],
        "ended": rank.get("ended") is True,
        "not_joined": rank.get("not_joined") is True,
        "failed_before": str(rank.get("failed_before") or "")[:_TEXT],
        **(collectives.plain(rank) if "groups" in rank else {}),
    }


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9
