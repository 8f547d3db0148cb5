"""MLflow's filters and orders."""

from __future__ import annotations

import math
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.mlflow import search
from torchyard.mlflow.search import EXPERIMENTS, RUNS, Condition, Order

ROWS: list[dict[str, Any]] = [
    {"attribute.run_id": "a", "metric.acc": 0.9, "param.lr": "0.1", "tag.my tag": "Dev one"},
    {"attribute.run_id": "b", "metric.acc": math.nan, "param.lr": "0.2", "tag.a.b": "x"},
    {"attribute.run_id": "c", "param.lr": "0.1", "attribute.start_time": 12},
    {"attribute.run_id": "d", "metric.acc": -math.inf, "attribute.start_time": 11},
]


def lookup(row: dict[str, Any], kind: str, key: str) -> Any:
    return row.get(f"{kind}.{key}")


def matching_ids(text: str) -> str:
    rows = search.filter_items(ROWS, search.parse_filter(text, RUNS), lookup)
    return "".join(row["attribute.run_id"] for row in rows)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", "abcd"),
        ("metrics.acc > 0.5", "a"),
        ("metric.acc<=.9", "ad"),
        ("metrics.acc != 0.9", "bd"),
        ("metrics.acc > -1e3 and params.lr = '0.1'", "a"),
        ("params.lr='0.1' AND attributes.run_id != 'a'", "c"),
        ("tags.`my tag` LIKE 'Dev%'", "a"),
        ("tags.`my tag` LIKE 'dev%'", ""),
        ("tags.`my tag` ilike 'dev_one'", "a"),
        ('tag."my tag" = "Dev one"', "a"),
        ("tags.a.b = 'x'", "b"),
        ("run_id IN ('a', 'd')", "ad"),
        ("attribute.run_id not in ('a','d')", "bc"),
        ("tags.a.b IS NULL", "acd"),
        ("params.lr is  not null", "abc"),
        ("start_time > 11", "c"),
        ("attributes.Created >= 11 AND run_id LIKE '%'", "cd"),
    ],
)
def test_a_filter_selects_rows(text: str, ids: str) -> None:
    assert matching_ids(text) == ids


@pytest.mark.parametrize(
    "text",
    [
        "metrics.acc",
        "metrics.acc > 'high'",
        "metrics.acc LIKE '1%'",
        "params.lr > '1'",
        "params.lr = 0.1",
        "tags.a = 'b' OR tags.c = 'd'",
        "tags.a = 'b' tags.c = 'd'",
        "tags.a = 'b' AND",
        "colour.red = 'x'",
        "attributes.colour = 'x'",
        "metrics.acc IS NULL",
        "run_id IN ()",
        "run_id = 'a'; DROP TABLE runs",
        "AND",
        "run_id IN ('a'",
        "run_id IN (,)",
        "run_id IN ('a' 'b')",
        "run_id = 'a",
        "tags.`a = 'b'",
        "run_id LIKE '" + "%" * 1001 + "'",
    ],
)
def test_invalid_filters_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        search.parse_filter(text, RUNS)


def test_experiments_have_fewer_attributes() -> None:
    assert search.parse_filter("name = 'x' AND tags.a != 'b'", EXPERIMENTS) == [
        Condition("attribute", "name", "=", "x"),
        Condition("tag", "a", "!=", "b"),
    ]
    with pytest.raises(InvalidInput):
        search.parse_filter("metrics.acc > 1", EXPERIMENTS)


@pytest.mark.parametrize(
    ("orders", "ids"),
    [
        (["metrics.acc"], "dabc"),
        (["metrics.acc DESC"], "adbc"),
        (["start_time DESC"], "cdab"),
        (["params.lr ASC", "attributes.run_id desc"], "cabd"),
        (["Run Name"], "abcd"),
    ],
)
def test_missing_values_come_last_in_every_order(orders: list[str], ids: str) -> None:
    rows = list(ROWS)
    search.sort_items(rows, search.parse_order_by(orders, RUNS), lookup)
    assert "".join(row["attribute.run_id"] for row in rows) == ids


def test_invalid_orders_are_refused() -> None:
    assert search.parse_order_by(["tags.`x y` DESC"], RUNS) == [Order("tag", "x y", True)]
    for text in ("metrics.acc up", "colour", ""):
        with pytest.raises(InvalidInput):
            search.parse_order_by([text], RUNS)


def test_pages_hold_every_item_once() -> None:
    items = list(range(10))
    token = ""
    collected: list[int] = []
    for _ in range(4):
        page, token = search.slice_page(items, token, 3)
        collected += page
    assert (collected, token) == (items, "")
    for bad in ("x", "e30=", search.make_page_token(-1)):
        with pytest.raises(InvalidInput):
            search.slice_page(items, bad, 3)


@pytest.mark.parametrize(
    ("pattern", "is_met"),
    [
        ("abcabd", True),
        ("%", True),
        ("a%d", True),
        ("%abd", True),
        ("%ab_", True),
        ("a_c%", True),
        ("%b_a%d", True),
        ("______", True),
        ("_____", False),
        ("abc", False),
        ("%abc", False),
        ("abcabd%d", False),
        ("%x%", False),
        ("A%", False),
        ("", False),
    ],
)
def test_like_knows_any_text_and_any_character(pattern: str, is_met: bool) -> None:
    assert search.matches(Condition("tag", "a", "LIKE", pattern), "abcabd") is is_met
    assert search.matches(Condition("tag", "a", "ILIKE", pattern.upper()), "abcABD") is (
        is_met or pattern == "A%"
    )
