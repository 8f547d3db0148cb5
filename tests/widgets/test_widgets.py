"""Azure ML's `RunDetails(run).show()`, real and unmodified, in JupyterLab in Chromium."""

from __future__ import annotations

import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from yard_under_test import Yard

pytestmark = [pytest.mark.widgets, pytest.mark.timeout(1500)]


@pytest.mark.smoke
def test_a_run_is_followed_while_it_learns(seen: dict[str, Any]) -> None:
    learning = seen["learning"]
    assert "ScriptRun Widget (Running)" in learning["text"], learning["text"]
    assert "running1" in learning["text"], "the nodes of the cluster"
    assert "epoch 10: loss 0.1353" in learning["log"], learning["log"]
    assert "epoch 11:" not in learning["log"], "the script goes on only when it was seen"
    assert "Run is completed" not in learning["log"], learning["log"]
    assert set(learning["plots"]) == {"loss", "accuracy"}, learning["plots"]
    assert all(1 < points <= 11 for points in learning["plots"].values()), learning["plots"]


def test_a_completed_run_shows_its_log_and_charts(seen: dict[str, Any], yard: Yard) -> None:
    ended = seen["ended"]
    assert "ScriptRun Widget (Completed)" in ended["text"], ended["text"]
    assert ended["log"].startswith("epoch 0: loss 1.0000"), ended["log"]
    assert ended["log"].endswith("learned\n\nRun is completed."), ended["log"]
    assert ended["plots"] == {"loss": 20, "accuracy": 20}, "every point is in the charts"
    run = _run_of(ended)
    assert json.loads(yard("job", "show", "-n", run, "-o", "json"))["status"] == "Completed"


def test_a_run_as_a_cells_value_is_a_table(seen: dict[str, Any]) -> None:
    shown = seen["run"]
    assert shown["text"].split("\n")[-1].startswith("widgets\t"), shown["text"]
    links = {urlsplit(link).path for link in shown["links"].values()}
    assert f"/runs/{_run_of(seen['ended'])}" in links, shown["links"]


def test_the_link_of_the_widget_leads_somewhere(seen: dict[str, Any]) -> None:
    link = seen["ended"]["links"]["View run details"]
    # The browser of a person asks whether to trust the server; a test need not.
    with urllib.request.urlopen(link, context=ssl._create_unverified_context()) as answer:
        page = answer.read().decode()
        path = urlsplit(answer.url).path
    assert path.startswith("/ui/workspaces/") and path.endswith(f"/jobs/{_run_of(seen['ended'])}")
    assert 'src="/ui/assets/index-' in page, page


def test_the_error_of_a_failed_run_is_shown(seen: dict[str, Any]) -> None:
    failed = seen["failed"]
    assert "(Failed)" in failed["text"], failed["text"]
    assert "ValueError: the learning rate is 0" in failed["log"], failed["log"]
    assert "Error occurred:" in failed["log"], failed["log"]


def test_children_are_listed(seen: dict[str, Any], yard: Yard) -> None:
    rows = [row.split() for row in seen["parent"]["rows"]]
    jobs = json.loads(yard("job", "list", "--query", "[].[name, status]", "-o", "json"))
    statuses = {name: status for name, status in jobs}
    assert {statuses[row[-1]] for row in rows} == {"Completed"}, (rows, statuses)


def test_a_sweep_shows_its_runs_the_best_first(seen: dict[str, Any], yard: Yard) -> None:
    sweep = seen["sweep"]
    address = sweep["links"]["Click here to see the run in Azure Machine Learning studio"]
    name = urlsplit(address).path.rpartition("/")[2]
    trials = {each["name"]: each for each in yard.get(f"sweeps/{name}/trials")["trials"]}
    rows = [row.split() for row in sweep["rows"]]
    (columns,) = {tuple(at for at, cell in enumerate(row) if cell in trials) for row in rows}
    names = [row[columns[0]] for row in rows]
    values = [trials[each]["values"][0] for each in names]
    assert len(values) == 3 and values == sorted(values, reverse=True)
    for row, trial in zip(rows, names, strict=True):
        rate, kind = (trials[trial]["parameters"][key] for key in ("--rate", "--kind"))
        assert float(row[-2]) == pytest.approx(rate) and row[-1] == kind, row
        assert float(row[1]) == pytest.approx(rate), "the best of its accuracies"
    details = sweep["text"]
    assert "Max concurrent runs\t2" in details and "Max total runs\t3" in details, details


def test_a_sweep_shows_its_metric_its_parameters_and_its_log(seen: dict[str, Any]) -> None:
    sweep = seen["sweep"]
    plot = "HyperDrive Run Primary Metric : accuracy"
    assert (sweep["lines"][plot], sweep["plots"][plot]) == (3, 3), "three runs of three values"
    assert "--rate ( uniform )" in sweep["text"] and "Metric - accuracy" in sweep["text"]
    log = sweep["log"]
    assert "begins: 3 trials, 2 at once, random, maximize accuracy" in log, log
    assert "best so far: trial" in log and "the sweep ends as Completed: 3 completed" in log, log
    assert log.endswith("Run is completed."), log


def test_nothing_leaves_the_machine(seen: dict[str, Any]) -> None:
    hosts = {urlsplit(url).hostname for url in seen["requests"] if url.startswith("http")}
    assert hosts == {"127.0.0.1"}, hosts
    assert not seen["errors"], seen["errors"]


def test_screenshots_are_pictures(seen: dict[str, Any], folder: Path) -> None:
    for name in ("learning.png", "ended.png", "failed.png", "children.png", "sweep.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG"), name


def _run_of(shown: dict[str, Any]) -> str:
    address: str = shown["links"]["View run details"]
    return urlsplit(address).path.rpartition("/")[2]
