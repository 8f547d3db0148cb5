"""`@last` for the newest job, `yard job wait`, and what a shell offers behind options."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace
from torchyard.cli.jobs import commands, metrics
from torchyard.cli.parsing import completion


@pytest.mark.slow
def test_last_stands_for_the_newest_job(server: ServedWorkspace, yard: Yard) -> None:
    none = yard("job", "show", "@last")
    assert none.code == 2
    assert f"`@last` is your newest job, and workspace `{server.name}` has" in none.err
    Path("job.yml").write_text("command: x\nenvironment: python\n")
    for name in ("first", "second"):
        yard("job", "create", "-f", "job.yml", "-n", name)
    shown = yard("job", "show", "@last", "-o", "json")
    assert json.loads(shown.out)["name"] == "second"
    slow = yard("job", "wait", "@last", "--timeout", "0.2")
    assert slow.code == 1 and "job `second` has not ended after 0.2 s" in slow.err
    job = server.launched("second")
    yard("job", "cancel", "-n", "@last")
    job.fail(1, "canceled")
    waited = yard("job", "wait", "-n", "@last", "--timeout", "20", "-o", "json")
    assert (waited.code, json.loads(waited.out)["status"]) == (1, "Canceled")
    for verb in (("shell", "@last", "--", "pwd"), ("release", "@last")):
        assert "job `second` is Canceled" in yard("job", *verb).err
    path = "azureml://jobs/@last/outputs/artifacts/paths/outputs/m.pt"
    assert "`second`" in yard("model", "create", "-n", "m", "-p", path).err
    assert yard("job", "delete", "@last", "--yes").code == 0
    assert json.loads(yard("job", "show", "@last", "-o", "json").out)["name"] == "first"
    assert "`@last`" in yard("model", "show", "@last").err


def test_a_shell_offers_statuses_and_metrics(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = commands.group.commands["list"]
    (status,) = [option for option in listing.params if option.name == "status"]
    context = click.Context(listing)
    assert [item.value for item in status.shell_complete(context, "c")] == [
        "CancelRequested", "Completed", "Canceled"
    ]  # fmt: skip
    monkeypatch.setattr(completion, "metric_keys", lambda job, *rest: [f"loss of {job}"])
    options = {option.name: option for option in metrics.metrics.params}

    def offered(option: str, *words: str) -> list[str]:
        context = metrics.metrics.make_context("m", list(words), resilient_parsing=True)
        return [item.value for item in options[option].shell_complete(context, "")]

    for words in (["a", "--plot"], ["-n", "a", "--plot"], ["--name", "a", "--plot", "loss"]):
        assert offered("argument", *words) == ["loss of a"], words
    assert offered("keys", "-n", "a", "-n", "b") == ["loss of a"]
    assert offered("keys", "--plot") == []
    monkeypatch.setattr(completion, "names", lambda *rest: ["a job"])
    assert offered("argument", "-n", "a") == offered("name", "--plot") == ["a job"]


def test_the_help_prints_no_range_of_64_bits(yard: Yard) -> None:
    assert "9223372036854775808" not in yard("job", "metrics", "--help").text
