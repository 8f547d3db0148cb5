"""`yard job list` as a leaderboard, and `client.jobs.list`, against the real server."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from cli.conftest import Yard
from cli.jobs.test_run_history import Runs, ask, real, rows, runs
from torchyard import Client, InvalidInput

__all__ = ["ask", "real", "runs"]

JOB = {"command": "true", "environment": "python"}


@pytest.fixture
def sweep(runs: Runs) -> dict[str, str]:
    """Names of runs by their loss."""
    names = {}
    for loss, rate in ((0.5, "0.01"), (0.125, "0.1"), (2.0, "1")):
        names[str(loss)] = runs({"loss": [9.0, loss]}, {"lr": rate}, experiment="sweep")
    return names


def test_the_best_come_first_with_their_columns(ask: Yard, sweep: dict[str, str]) -> None:
    board = ("job", "list", "--experiment-name", "sweep", "--sort", "metrics.loss")
    answer = ask(*board, "--columns", "params", "-r", 2)
    assert answer.code == 0, answer.err
    heading, _, *lines = rows(answer)
    assert heading[:4] == ["NAME", "STATUS", "last loss", "params.lr"]
    assert [line[:4] for line in lines] == [
        [sweep["0.125"], "Completed", "0.125", "0.1"],
        [sweep["0.5"], "Completed", "0.5", "0.01"],
    ]
    worst = json.loads(ask(*board, "--desc", "-r", 1, "-o", "json").text)
    assert [(job["name"], job["metrics"]) for job in worst] == [(sweep["2.0"], {"loss": 2.0})]
    assert "\t0.125\t" in ask(*board, "-o", "tsv").text
    listed = ask("job", "list", "--owner", "nobody").text
    assert listed == ask("job", "list", "--until", "2020-01-01").text == ""


def test_wrong_columns_and_orders_are_refused(ask: Yard) -> None:
    for arguments, hint in (
        (("--sort", "los"), "error: jobs can't be sorted by `los`"),
        (("--sort", "creatd_at"), "hint: did you mean `created_at`?"),
        (("--columns", "loss"), "hint: use metrics.NAME"),
        (("--since", "soon"), "`soon` is not a time in the past"),
        (("--desc",), "`descending` needs `sort`"),
        (("--tag", "=x"), "`=x` is not a tag"),
    ):
        answer = ask("job", "list", *arguments)
        assert answer.code == 2 and hint in answer.err, answer.err


def test_a_clone_keeps_the_display_name_and_names_its_origin(ask: Yard, runs: Runs) -> None:
    client: Client = runs.client
    first = client.jobs.create({**JOB, "inputs": {"epochs": 3, "lr": 0.1}, "tags": {"a": "b"}})
    assert client.jobs.clone(first.name).display_name == client.jobs.list()[0].name
    client.jobs.update(first.name, display_name="best so far")
    clone = client.jobs.clone(first.name, set={"inputs.epochs": 1, "tags.a.b": "c"})
    assert clone.raw["spec"]["inputs"] == {"epochs": 1, "lr": 0.1}
    assert (clone.tags, clone.display_name) == ({"a": "b", "a.b": "c"}, "best so far")
    assert clone.properties["torchyard.cloned_from"] == first.name
    assert f"Cloned from   {first.name}" in ask("job", "show", clone.name).text
    again = json.loads(
        ask("job", "clone", clone.name, "--set", "display_name=x", "-o", "json").text
    )
    assert again["display_name"] == "x"
    assert again["properties"]["torchyard.cloned_from"] == clone.name
    for path, message in (("", "not the path"), ("command.x", "nothing can be set at `x`")):
        with pytest.raises(InvalidInput, match=message):
            client.jobs.clone(first.name, set={path: 1})


def test_the_sdk_lists_by_conditions_over_pages(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Client = runs.client
    for number in range(5):
        client.jobs.create(
            {**JOB, "inputs": {"lr": 10.0**-number}, "tags": {"team": "x y", "n": str(number)}},
            name=f"sdk-{number}",
        )
    monkeypatch.setattr("torchyard.client.jobs._PAGE", 2)
    best = client.jobs.list(
        tags={"team": "x y", "n": None}, sort="inputs.lr", columns=["inputs.lr"], max_results=None
    )
    assert [(job.name, job.columns) for job in best] == [
        (f"sdk-{number}", {"inputs.lr": 10.0**-number}) for number in (4, 3, 2, 1, 0)
    ]
    assert client.jobs.get("sdk-1").columns == {}
    now = datetime.now(timezone.utc)
    recent = client.jobs.list(text="SDK-", created_after=now - timedelta(hours=1), max_results=3)
    assert [job.name for job in recent] == ["sdk-4", "sdk-3", "sdk-2"]
    assert not client.jobs.list(text="sdk-", created_before=now - timedelta(hours=1))
    with pytest.raises(InvalidInput, match="has no column `loss`"):
        client.jobs.list(columns=["loss"])
