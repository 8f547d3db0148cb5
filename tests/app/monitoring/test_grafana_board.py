"""The board of packaging/ asks for what /metrics has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from torchyard.base.clock import FakeClock
from workspaces.served import HERE, Served, served

BOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "packaging" / "grafana-board.json").read_text(encoding="utf-8")
)
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
_NAME = re.compile(r"\b(?:torchyard|process)_[a-z0-9_]+")
_SELECTED = re.compile(r"\b((?:torchyard|process)_[a-z0-9_]+)\{([^}]*)\}")
_BY = re.compile(r"\bby \(([^)]*)\)")
# What Prometheus itself adds to every sample.
_ADDED = {"job", "instance"}


@pytest.fixture(scope="module")
def labels_by_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """The names that /metrics has after a request, with their labels."""
    with served(tmp_path_factory.mktemp("home"), "", FakeClock()) as site:
        yield labels_of(site)


def labels_of(site: Served) -> dict[str, set[str]]:
    site.ask("dan", "GET", f"{HERE}/jobs")
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(site.ask("home", "GET", "/metrics").text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_expression_names_metrics_and_labels_that_there_are(
    panel: dict[str, Any], labels_by_name: dict[str, set[str]]
) -> None:
    assert expressions(panel)
    for expression in expressions(panel):
        names = _NAME.findall(expression)
        assert names, expression
        assert set(names) <= set(labels_by_name), expression
        labels = set().union(_ADDED, *(labels_by_name[name] for name in names))
        selectors = _SELECTED.findall(expression)
        assert [name for name, _ in selectors] == names, "every metric is of the chosen servers"
        for _, selector in selectors:
            assert set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\"", selector)) <= labels
        for grouped in _BY.findall(expression):
            assert {name.strip() for name in grouped.split(",")} <= labels, expression


def test_the_variables_of_the_board_are_those_that_panels_use() -> None:
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(PANELS)))
    assert used == names


def test_the_names_of_queries_of_variables_exist(labels_by_name: dict[str, set[str]]) -> None:
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            assert set(_NAME.findall(variable["query"]["query"])) <= set(labels_by_name)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells), panel["title"]
        taken |= cells
