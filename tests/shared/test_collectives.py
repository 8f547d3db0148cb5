"""Who is blamed for ranks that don't do the same."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from torchyard.shared import collectives
from torchyard.shared.collectives import RankCalls

STEP = ("all_reduce", "[4] float", "train.py line 12")
LOG = ("all_reduce", "[1] float", "train.py line 15")
BARRIER = ("barrier", "", "train.py line 20")


def rank(
    number: int, *calls: Sequence[str], waits: bool = True, group: str = "0", where: str = ""
) -> RankCalls:
    """A rank that called these; the last one is not done if it `waits`."""
    listed = [
        {"number": count, "name": f"gloo:{name}", "shapes": shapes, "where": line,
         "done": count < len(calls) or not waits}
        for count, (name, shapes, line) in enumerate(calls, 1)
    ]  # fmt: skip
    body = {"rank": str(number), "groups": [{"name": group, "ranks": [], "calls": listed}]}
    return collectives.from_json(number, json.loads(json.dumps(body)), where)


def test_a_rank_that_has_not_come_is_named_with_its_place() -> None:
    late = rank(1, STEP, waits=False, where="data.py line 8 in load")
    finding = collectives.compare([rank(0, STEP, LOG), late, rank(2, STEP, LOG)])
    assert finding is not None
    assert (finding.ranks, finding.collective, finding.where) == (
        (1,), "all_reduce", "data.py line 8 in load"
    )  # fmt: skip
    assert not finding.differs


def test_a_rank_without_a_list_has_not_come_either() -> None:
    silent = RankCalls(2, {}, {}, "native.py line 3")
    finding = collectives.compare([rank(0, STEP), rank(1, STEP), silent])
    assert finding is not None and finding.ranks == (2,)


@pytest.mark.parametrize(
    ("odd", "tail"),
    [
        ((STEP, BARRIER), ": it skipped one"),
        ((STEP, BARRIER, STEP), ": it skipped one"),
        ((STEP, BARRIER, LOG, STEP), ": it made one call more"),
    ],
)
def test_a_rank_that_calls_something_else_is_named(odd: Sequence[Any], tail: str) -> None:
    usual = (STEP, LOG, STEP) if "more" in tail else (STEP, LOG, BARRIER, STEP)
    finding = collectives.compare([rank(0, *usual), rank(1, *odd), rank(2, *usual)])
    assert finding is not None and finding.differs
    assert (finding.ranks, finding.where) == ((1,), "train.py line 20")
    assert finding.sentence.endswith(f"[1] float (train.py line 15){tail}")


def test_of_two_that_differ_none_is_blamed() -> None:
    finding = collectives.compare([rank(0, STEP), rank(1, BARRIER)])
    assert finding is not None and finding.differs and finding.ranks == ()
    assert "rank 0" in finding.sentence and "rank 1" in finding.sentence


def test_a_call_that_was_left_out_among_equal_ones_is_seen_by_its_line() -> None:
    one, other = (
        ("all_reduce", "[4] float", "a.py line 1"),
        ("all_reduce", "[4] float", "a.py line 2"),
    )
    usual = (one, other, one, other)
    finding = collectives.compare([rank(0, *usual), rank(1, one, one, other), rank(2, *usual)])
    assert finding is not None and finding.differs
    assert (finding.ranks, finding.where) == ((1,), "a.py line 2")


def test_lines_that_differ_by_rank_are_no_fault() -> None:
    root, others = (
        ("broadcast", "[4] float", "a.py line 1"),
        ("broadcast", "[4] float", "a.py line 3"),
    )
    ranks = [rank(0, root, waits=False), rank(1, others, waits=False), rank(2, others, waits=False)]
    assert collectives.compare(ranks) is None


def test_ranks_that_wait_behind_others_are_not_blamed() -> None:
    ranks = [rank(0, STEP), rank(1, STEP, BARRIER), rank(2, STEP)]
    finding = collectives.compare(ranks)
    assert finding is not None and finding.ranks == ()


def test_the_group_in_which_ranks_wait_is_compared() -> None:
    ranks = [rank(number, STEP, waits=False) for number in range(4)]
    inner = [
        rank(0, LOG, LOG, group="5"),
        rank(1, LOG, waits=False, group="5", where="x.py line 1"),
    ]
    both = [
        RankCalls(each.rank, {**each.groups, **more.groups}, {"5": [0, 1]}, more.where)
        for each, more in zip(ranks[:2], inner, strict=True)
    ]
    finding = collectives.compare([*both, *ranks[2:]])
    assert finding is not None and finding.ranks == (1,)


def in_two_groups(
    number: int, world: Sequence[Any], inner: Sequence[Any], members: Sequence[int], where: str
) -> RankCalls:
    """A rank that waits in the last call of the inner group, or of the world where it has none."""
    groups = rank(number, *world, waits=not inner).groups
    if members:
        groups = {**groups, **rank(number, *inner, group="5").groups}
    return RankCalls(number, groups, {"0": range(4), "5": members}, where)


def test_of_groups_that_wait_for_each_other_the_smaller_one_is_told() -> None:
    ranks = [
        in_two_groups(0, [BARRIER], [], (), "a.py line 9"),
        in_two_groups(1, [BARRIER], [], (), "a.py line 9"),
        in_two_groups(2, [], [STEP], (2, 3), "a.py line 5"),
        in_two_groups(3, [BARRIER], [], (2, 3), "a.py line 9"),
    ]
    finding = collectives.compare(ranks)
    assert finding is not None
    assert (finding.ranks, finding.collective) == ((3,), "all_reduce")


def test_who_waits_in_another_group_is_not_to_blame_where_another_rank_has_not_come() -> None:
    ranks = [
        in_two_groups(0, [BARRIER], [], (), "a.py line 9"),
        RankCalls(1, {"0": []}, {}, "data.py line 3"),
        in_two_groups(2, [], [STEP], (2, 3), "a.py line 5"),
        in_two_groups(3, [BARRIER], [], (2, 3), "a.py line 9"),
    ]
    finding = collectives.compare(ranks)
    assert finding is not None
    assert (finding.ranks, finding.where) == ((1,), "data.py line 3")


@pytest.mark.parametrize(
    ("made", "ranks"),
    [((3, 3, 2), (2,)), ((2, 3, 3), (0,)), ((2, 2, 2), ()), ((2, 3), ()), ((3, 3, 0), ())],
)
def test_a_rank_that_made_another_number_of_groups_is_named(
    made: Sequence[int], ranks: tuple[int, ...]
) -> None:
    bodies = [{"rank": str(number), "groups_made": count} for number, count in enumerate(made)]
    listed = [collectives.from_json(number, body) for number, body in enumerate(bodies)]
    finding = collectives.compare(listed)
    assert (finding.ranks if finding is not None else ()) == ranks


@pytest.mark.parametrize(
    ("survivors", "received", "expected", "blamed"),
    [
        ([(0, "[8] float"), (1, "[8] float")], 20, 32, (2,)),
        ([(0, "[1] double"), (1, "[1] float")], 8, 4, (0,)),
        ([(0, "[1] float"), (1, "[1] double")], 8, 4, (1,)),
        ([(0, "[100] float"), (1, "[1] float")], 68, 4, (0,)),
        ([(0, "[5] float"), (1, "[8] float"), (3, "[8] float")], 20, 32, (0,)),
        ([(0, "[5] float"), (1, "[7] float")], 3, 1000, ()),
    ],
)
def test_a_rank_that_was_lost_by_a_wrong_size(
    survivors: list[tuple[int, str]], received: int, expected: int, blamed: tuple[int, ...]
) -> None:
    ranks = [rank(number, ("all_reduce", shapes, "a.py line 4")) for number, shapes in survivors]
    lost = RankCalls(2, {}, {}, "a.py line 4")
    finding = collectives.compare_with_lost(ranks, lost, "all_reduce", received, expected)
    assert finding is not None and finding.ranks == blamed and finding.differs


def test_a_rank_may_have_gone_on_since_the_wrong_size() -> None:
    wide = ("all_to_all", "[8] float", "a.py line 4")
    lost = RankCalls(2, {}, {}, "a.py line 4")
    ranks = [rank(0, wide, BARRIER), rank(1, wide, BARRIER)]
    finding = collectives.compare_with_lost(ranks, lost, "all_to_all_single", 4096, 3072)
    assert finding is not None and finding.ranks == (2,) and finding.collective == "all_to_all"


def test_what_a_rank_makes_up_is_left_out() -> None:
    source = random.Random(7)
    values = [
        None,
        "x",
        -1,
        1e300,
        True,
        [],
        {},
        2**60,
        "\0",
        ["y"] * 3,
        {"number": "1"},
        float("nan"),
    ]

    def made_up(depth: int) -> Any:
        if depth == 0:
            return source.choice(values)
        keys = ("groups", "calls", "name", "ranks", "number", "shapes", "where", "done", "ended")
        if source.random() < 0.5:
            return [made_up(depth - 1) for _ in range(3)]
        return {key: made_up(depth - 1) for key in source.sample(keys, 5)}

    for _ in range(300):
        collectives.compare([collectives.from_json(number, made_up(4)) for number in range(3)])


def test_a_thousand_ranks_are_compared_at_once() -> None:
    steps = [STEP] * 40
    ranks = [rank(number, *steps) for number in range(1024) if number != 700]
    started = time.process_time()
    finding = collectives.compare([*ranks, rank(700, *steps[:-1], waits=False)])
    assert finding is not None and finding.ranks == (700,)
    assert time.process_time() - started < 60
