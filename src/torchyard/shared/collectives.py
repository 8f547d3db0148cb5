"""Compare what the ranks of a job did among each other: who skipped a collective, who differs.

Owns: a rank's list of its recent collectives, as JSON and as types; finding the rank that does not
do what the others do, and the sentence about it.
Leaves: making a list to worker/in_rank/collectives_hook.py, reading it to
worker/diagnosis/rank_calls.py, when to compare to those who know that ranks wait.
Always: a rank is blamed only if most others agree against it, or if it alone has not come; with two
that differ both are named and none is blamed. Whatever a list holds, comparing it ends: only so
many calls of so many groups are read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

HINT = (
    "all ranks of a group must make the same collective calls in the same order, with the same "
    "shapes and types"
)
_MOST_CALLS, _MOST_GROUPS, _MOST_RANKS = 12, 16, 65_536
_TEXT = 200
_NUMBER = range(2**53)
_SHOWN_RANKS = 8
_SHAPE, _NUMBERS = re.compile(r"\[([\d, ]*)\] (\w+)"), re.compile(r"\d{1,12}")
_BYTES = {"double": 8, "long": 8, "half": 2, "bfloat16": 2, "short": 2, "bool": 1, "byte": 1,
          "char": 1, "complexfloat": 8, "complexdouble": 16}  # fmt: skip
# Names of torch's operations in a recorder, where they are not those that people call.
_NAMES = {"_allgather_base": "all_gather_into_tensor", "allgather": "all_gather",
          "allreduce": "all_reduce", "alltoall": "all_to_all",
          "_reduce_scatter_base": "reduce_scatter_tensor"}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One collective of a rank. `number` counts in its group from 1; `shapes` are those that it
    gave, as `[4, 3] float32`; `where` is the user's line, as `train.py line 7`, or empty.
    """

    number: int
    name: str
    shapes: str
    done: bool
    where: str = ""

    @property
    def form(self) -> tuple[str, str]:
        return self.name, self.shapes

    @property
    def size_bytes(self) -> int:
        """Of all its tensors together; 1 at least."""
        return max(
            1,
            sum(
                math.prod(int(length) for length in _NUMBERS.findall(shape)) * _BYTES.get(kind, 4)
                for shape, kind in _SHAPE.findall(self.shapes)
            ),
        )

    @property
    def described(self) -> str:
        return f"{self.name} with {self.shapes}" if self.shapes else self.name


@dataclass(frozen=True)
class RankCalls:
    """What one rank called last, by group, and where it is now; a group's calls are in order.

    `groups_made` counts its calls of `init_process_group` and `new_group`; 0 if that isn't known.
    """

    rank: int
    groups: Mapping[str, Sequence[Call]]
    members: Mapping[str, Sequence[int]]
    where: str = ""
    groups_made: int = 0


@dataclass(frozen=True)
class Finding:
    """`ranks` are to blame, none where nobody can be told; `where` is the line of the first.

    `differs` says that they called something else than the others, and not only too late.
    """

    sentence: str
    ranks: tuple[int, ...]
    collective: str
    where: str
    differs: bool = False


def plain(body: Any) -> dict[str, Any]:
    """A rank's list as it is sent and kept: its groups with their last calls, and their number.

    The list comes from the rank, which is the user's program: what does not fit is left out, and no
    more than a little is kept.
    """
    body = body if isinstance(body, Mapping) else {}
    made = body.get("groups_made")
    groups = [
        {
            "name": str(group.get("name"))[:_TEXT],
            "ranks": [each for each in _list(group.get("ranks"))[:_MOST_RANKS] if _is_number(each)],
            "calls": [
                {
                    "number": call["number"],
                    "name": named(str(call.get("name"))[:_TEXT]),
                    "shapes": str(call.get("shapes") or "")[:_TEXT],
                    "where": str(call.get("where") or "")[:_TEXT],
                    "done": call.get("done") is True,
                }
                for call in _list(group.get("calls"))[-_MOST_CALLS:]
                if isinstance(call, Mapping) and _is_number(call.get("number"))
            ],
        }
        for group in _list(body.get("groups"))[:_MOST_GROUPS]
        if isinstance(group, Mapping)
    ]
    return {"groups": groups, "groups_made": made if _is_number(made) else 0}


def from_json(rank: int, body: Any, where: str = "") -> RankCalls:
    """A rank's list.

    Args:
        body: `ended` says that the rank had failed by then, as by waiting too long: then its last
            call did not end well, whatever the recorder says.
    """
    groups: dict[str, list[Call]] = {}
    members: dict[str, list[int]] = {}
    has_ended = isinstance(body, Mapping) and body.get("ended") is True
    listed = plain(body)
    for group in listed["groups"]:
        calls = sorted((Call(**call) for call in group["calls"]), key=lambda call: call.number)
        if calls and has_ended:
            calls[-1] = replace(calls[-1], done=False)
        if calls and not calls[-1].done:
            calls[-1] = replace(calls[-1], where=calls[-1].where or where)
        groups[group["name"]], members[group["name"]] = calls, group["ranks"]
    return RankCalls(rank, groups, members, where, listed["groups_made"])


def compare(ranks: Sequence[RankCalls]) -> Finding | None:
    """Who does something else than the others, in the first group in which somebody waits.

    A rank that is missed in one group because it waits in another one is not to blame as long as
    anybody else is; where ranks of two groups wait for each other, the smaller one's tells more.
    """
    waiting_in = {each.rank: _waits_in(each) for each in ranks}
    circular: dict[int, Finding] = {}
    for group in _groups_in_order(ranks):
        calls = {each.rank: list(each.groups[group]) for each in ranks if group in each.groups}
        members = next(each.members.get(group, ()) for each in ranks if group in each.groups)
        known = {each.rank: each for each in ranks if not members or each.rank in members}
        elsewhere = {rank for rank in known if waiting_in[rank] - {group}}
        finding = _differing(calls) or _behind(calls, known, elsewhere)
        if finding is None:
            continue
        if not elsewhere.issuperset(finding.ranks) or not finding.ranks:
            return finding
        circular.setdefault(len(known), finding)
    return circular[min(circular)] if circular else _other_number_of_groups(ranks)


def _waits_in(rank: RankCalls) -> set[str]:
    return {name for name, calls in rank.groups.items() if _is_waiting(calls)}


def _other_number_of_groups(ranks: Sequence[RankCalls]) -> Finding | None:
    """The ranks that called `new_group` less or more often than most others."""
    made = Counter(each.groups_made for each in ranks if each.groups_made)
    if len(made) != 2 or made.total() < len(ranks):
        return None
    (usual, count), (other, _) = made.most_common()
    odd = sorted((each.rank, each.where) for each in ranks if each.groups_made == other)
    if 2 * count <= len(ranks):
        return None
    sentence = (
        f"{_ranks([rank for rank, _ in odd])} called new_group {_times(other - 1)}"
        f"{_at(odd[0][1])}, the others {_times(usual - 1)}: all ranks must call it for each group, "
        "also those that are not in it"
    )
    return Finding(sentence, tuple(rank for rank, _ in odd), "new_group", odd[0][1], True)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def compare_with_lost(
    ranks: Sequence[RankCalls], lost: RankCalls, called: str, received: int, expected: int
) -> Finding | None:
    """Who called another size than the others, of ranks of which one was lost with its list.

    Args:
        lost: the rank that ended because it received so many bytes and not as many as it expected;
            of its calls nothing is known.
        called: the function of torch that it was in; empty if that isn't known.
    """
    last = {
        each.rank: _last_call(calls, called)
        for each in ranks
        if each.rank != lost.rank and (calls := next(iter(each.groups.values()), None))
    }
    forms = Counter(call.form for call in last.values())
    if not last or len(forms) > 2:
        return None
    usual = next(call for call in last.values() if call.form == forms.most_common(1)[0][0])
    if len(forms) == 1:
        sentence = (
            f"rank {lost.rank} called a collective of another size{_at(lost.where)} than the "
            f"others, which called {usual.described}{_at(usual.where)}"
        )
        return Finding(sentence, (lost.rank,), usual.name, lost.where, True)
    one, other = (next(r for r in last if last[r].form == form) for form in forms)
    if list(forms.values()) == [1, 1]:
        # Two are left: the one whose data was too long or too short is not as the lost one's.
        ratio = last[one].size_bytes / last[other].size_bytes
        matches = [_is_near(received / max(1, expected), each) for each in (ratio, 1 / ratio)]
        fits = [last[rank].size_bytes == expected for rank in (other, one)]
        if matches[0] == matches[1]:
            matches = fits
        if matches[0] == matches[1]:
            return _nobody_to_blame(last)
        odd, usual = (one, last[other]) if matches[0] else (other, last[one])
    else:
        odd = next(rank for rank in sorted(last) if last[rank].form != usual.form)
    return Finding(
        f"rank {odd} called {last[odd].described}{_at(last[odd].where)} where the others called "
        f"{usual.described}{_at(usual.where)}",
        (odd,),
        last[odd].name,
        last[odd].where,
        True,
    )


def _last_call(calls: Sequence[Call], called: str) -> Call:
    """The last one by that function: a rank may have gone on to the next since."""
    same = [call for call in calls if call.name and called.startswith(call.name)]
    return same[-1] if same else calls[-1]


def _is_near(value: float, other: float) -> bool:
    return other > 0 and 0.75 < value / other < 1.34


def _groups_in_order(ranks: Sequence[RankCalls]) -> Iterator[str]:
    """Those first in which a rank waits."""
    names = dict.fromkeys(name for each in ranks for name in each.groups)
    waiting = {
        name
        for each in ranks
        for name, calls in each.groups.items()
        if any(not call.done for call in calls)
    }
    yield from (name for name in names if name in waiting)
    yield from (name for name in names if name not in waiting)


def _differing(calls: Mapping[int, list[Call]]) -> Finding | None:
    """The first call that is not the same for all."""
    by_number: dict[int, dict[int, Call]] = {}
    for rank, listed in calls.items():
        for call in listed:
            by_number.setdefault(call.number, {})[rank] = call
    for number in sorted(by_number):
        called = by_number[number]
        forms = Counter(call.form for call in called.values())
        if len(forms) < 2:
            continue
        usual, count = forms.most_common(1)[0]
        if 2 * count <= len(called):
            return _nobody_to_blame(called)
        ranks = sorted(rank for rank, call in called.items() if call.form != usual)
        other = next(call for rank, call in sorted(called.items()) if call.form == usual)
        mine = called[ranks[0]]
        shift = _shift(
            calls[ranks[0]], calls[next(r for r in called if called[r] is other)], number
        )
        return Finding(
            f"{_ranks(ranks)} called {mine.described}{_at(mine.where)} where the others called "
            f"{other.described}{_at(other.where)}{shift}",
            tuple(ranks),
            mine.name,
            mine.where,
            True,
        )
    return None


def _nobody_to_blame(called: Mapping[int, Call]) -> Finding:
    parts = [f"rank {rank} called {call.described}{_at(call.where)}" for rank, call in
             sorted(called.items())[:_SHOWN_RANKS]]  # fmt: skip
    first = called[min(called)]
    sentence = f"the ranks call different collectives: {', '.join(parts)}"
    return Finding(sentence, (), first.name, first.where, True)


def _shift(mine: Sequence[Call], others: Sequence[Call], number: int) -> str:
    """Whether a rank left one out or made one more: what follows is the same, one call apart."""
    own = [call.form for call in mine if call.number >= number]
    theirs = [call.form for call in others if call.number >= number]
    if _begin_alike(own, theirs[1:]):
        return ": it skipped one"
    if _begin_alike(own[1:], theirs):
        return ": it made one call more"
    return ""


def _begin_alike(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> bool:
    shared = min(len(one), len(other))
    return shared > 0 and list(one[:shared]) == list(other[:shared])


def _behind(
    calls: Mapping[int, list[Call]], known: Mapping[int, RankCalls], elsewhere: set[int]
) -> Finding | None:
    """The ranks that have not come to the call in which others wait.

    Args:
        elsewhere: these wait in another group, and are named only if there are no others.
    """
    last = {rank: calls[rank][-1].number if calls.get(rank) else 0 for rank in known}
    furthest = max(last.values(), default=0)
    waiting = [
        listed[-1]
        for listed in calls.values()
        if listed and listed[-1].number == furthest and not listed[-1].done
    ]
    late = sorted(rank for rank, number in last.items() if number < furthest)
    if not waiting or not late or len(late) >= len(last):
        return None
    late = [rank for rank in late if rank not in elsewhere] or late
    call = waiting[0]
    if skipped := _skipped(calls, late):
        return skipped
    if inside := {rank: calls[rank][-1] for rank in late if _is_waiting(calls.get(rank))}:
        return _apart(calls, inside, furthest)
    stands = known[late[0]].where
    now = f"; it stands at {stands}" if stands and len(late) == 1 else ""
    if stands and len(late) > 1:
        now = f"; rank {late[0]} stands at {stands}"
    sentence = (
        f"{_ranks(late)} {'has' if len(late) == 1 else 'have'} not called {call.name} "
        f"number {call.number}{_at(call.where)}, in which the others wait{now}"
    )
    return Finding(sentence, tuple(late), call.name, stands or call.where)


def _is_waiting(calls: Sequence[Call] | None) -> bool:
    return calls is not None and bool(calls) and not calls[-1].done


def _apart(calls: Mapping[int, list[Call]], inside: Mapping[int, Call], furthest: int) -> Finding:
    """Of ranks that wait in one call while others have left it: nobody can be blamed."""
    call = inside[min(inside)]
    ahead = sorted(r for r, listed in calls.items() if listed and listed[-1].number == furthest)
    further = calls[ahead[0]][-1]
    verb = "waits" if len(inside) == 1 else "wait"
    sentence = (
        f"{_ranks(sorted(inside))} {verb} in {call.name} number {call.number}{_at(call.where)}, "
        f"which {_ranks(ahead)} {'has' if len(ahead) == 1 else 'have'} left for {further.name} "
        f"number {further.number}{_at(further.where)}: do all ranks name the same source and sizes"
    )
    return Finding(sentence, (), call.name, call.where)


def _skipped(calls: Mapping[int, list[Call]], late: Sequence[int]) -> Finding | None:
    """Of calls of the same form only their lines tell that one rank left one out: from there on
    it makes each at the line where the others make the next one.
    """
    if len(late) != 1:
        return None
    rank = late[0]
    other = next(listed for each, listed in calls.items() if each != rank and listed)
    theirs = {call.number: call for call in other}
    for call in calls.get(rank, ()):
        match = theirs.get(call.number)
        if match is None or not call.where or call.where == match.where:
            continue
        following = theirs.get(call.number + 1)
        if following is not None and following.where == call.where:
            return Finding(
                f"rank {rank} skipped {match.name} number {match.number}{_at(match.where)}: it "
                f"went on with the one{_at(call.where)}, and the others wait for it in the next",
                (rank,),
                match.name,
                match.where,
                True,
            )
        return None
    return None


def named(name: str) -> str:
    """The operation as people call it, of a recorder's `gloo:all_reduce`."""
    plain = name.rpartition(":")[2].partition(" ")[0]
    return _NAMES.get(plain, plain)


def _ranks(ranks: Sequence[int]) -> str:
    numbers = ", ".join(str(rank) for rank in ranks[:_SHOWN_RANKS])
    more = f" and {len(ranks) - _SHOWN_RANKS} more" if len(ranks) > _SHOWN_RANKS else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}{more}"


def _at(where: str) -> str:
    return f" ({where})" if where else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _NUMBER
