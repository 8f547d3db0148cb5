"""A pipeline at the command line: its steps while they run, and what is said of the failed one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from cli.conftest import Yard
from cli.served_workspace import PlayedJob, ServedWorkspace
from eventually import eventually
from torchyard.cli.jobs import pipeline_page

STEP = {"command": "true", "environment": "python"}
TRAIN = {
    **STEP,
    "command": "cat ${{inputs.data}}",
    "inputs": {"data": "${{parent.jobs.prep.outputs.data}}"},
}
PIPELINE = {
    "type": "pipeline",
    "name": "chain",
    "jobs": {
        "prep": {**STEP, "command": "ls ${{outputs.data}}", "outputs": {"data": {}}},
        "train": TRAIN,
        "nap": STEP,
    },
}


def submit(server: ServedWorkspace, **changes: Any) -> None:
    with server.client() as client:
        client.jobs.create({**PIPELINE, **changes})


def launched(server: ServedWorkspace, step: str) -> PlayedJob:
    name = f"chain_{step}"
    with server.client() as client:
        eventually(
            lambda: name in [each.job for each in client.pipelines.steps("chain")],
            f"step {step} to start",
            every_s=0.005,
        )
    return server.launched(name)


def complete(server: ServedWorkspace, step: str) -> None:
    job = launched(server, step)
    if step == "prep":
        job.write_output("data", "rows.txt", b"1")
    job.complete()


def end(server: ServedWorkspace) -> None:
    """Until the pipeline has ended, once its steps have."""
    eventually(lambda: server.job("chain").status.ended, "the pipeline to end", every_s=0.005)


def test_a_line_tells_of_each_step_and_the_summary_of_the_end(
    server: ServedWorkspace, yard: Yard
) -> None:
    submit(server)
    for step in ("prep", "nap", "train"):
        complete(server, step)
    end(server)
    answer = yard("job", "stream", "-n", "chain")
    assert answer.code == 0
    lines = [line.partition(" ")[2] for line in answer.text.splitlines()]
    assert "step prep starts as job chain_prep" in lines and "step train: completed" in lines
    assert lines[-1] == "the pipeline ends as Completed: 3 completed"
    assert "Status:  Completed" in answer.err


def test_a_failed_pipeline_ends_with_its_step_and_the_command_that_shows_more(
    server: ServedWorkspace, yard: Yard
) -> None:
    submit(server)
    complete(server, "nap")
    launched(server, "prep").fail(3)
    end(server)
    answer = yard("job", "stream", "-n", "chain")
    assert answer.code == 1
    assert "error: step `prep` failed" in answer.err
    assert "hint: see `yard job show -n chain_prep`" in answer.err
    page = yard("job", "show", "-n", "chain").text
    assert re.search(r"^prep +Failed ", page, re.M) and re.search(r"^train +Skipped ", page, re.M)


def test_at_a_terminal_the_steps_are_drawn_until_the_end(
    server: ServedWorkspace, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(server)
    jobs = iter(("prep", "nap", "train"))

    def go_on(_seconds: float) -> None:
        step = next(jobs, "")
        if step:
            complete(server, step)
        else:
            end(server)

    with server.client() as client:
        assert pipeline_page.follow(client, "chain", go_on)["status"] == "Completed"
    pages = re.split(r"\x1b\[\d+F", capsys.readouterr().out)
    assert len(pages) > 1 and "0 of 3 steps ended" in pages[0]
    assert re.search(r"^train +Waiting +waits for prep", click.unstyle(pages[0]), re.M)
    assert "3 of 3 steps ended" in pages[-1]


def test_the_newest_job_is_the_pipeline_and_none_of_its_steps(
    server: ServedWorkspace, yard: Yard
) -> None:
    submit(server)
    launched(server, "prep")
    assert json.loads(yard("job", "show", "@last", "-o", "json").out)["name"] == "chain"


def test_of_many_steps_those_are_shown_that_failed_run_or_wait() -> None:
    outcomes = ["completed"] * 6 + ["live", "failed", ""]
    steps: list[dict[str, Any]] = [
        {
            "number": number,
            "name": f"step_{number}",
            "outcome": outcome,
            "status": "Running" if outcome == "live" else "",
            "reason": "",
            "takes": {},
            "reused_from": "",
            "job": "",
            "started_at": None,
            "ended_at": None,
            "duration_s": None,
        }
        for number, outcome in enumerate(outcomes)
    ]
    text = pipeline_page.table(steps, 4)
    assert re.findall(r"^step_\d", text, re.M) == ["step_0", "step_6", "step_7", "step_8"]
    assert text.endswith("… and 5 more: 5 completed")


def test_a_value_of_a_step_is_set_by_its_path(server: ServedWorkspace, yard: Yard) -> None:
    Path("pipeline.yml").write_text(yaml.safe_dump(PIPELINE))
    path = "jobs.nap.environment_variables.DEPTH=3"
    assert yard("job", "create", "-f", "pipeline.yml", "--set", path).code == 0
    job = launched(server, "nap")
    assert server.document("chain_nap")["environment_variables"]["DEPTH"] == "3"
    job.complete()


def test_a_step_that_is_not_there_is_told_with_the_nearest_one(
    server: ServedWorkspace, yard: Yard
) -> None:
    Path("pipeline.yml").write_text(yaml.safe_dump(PIPELINE))
    answer = yard("job", "create", "-f", "pipeline.yml", "--set", "jobs.trian.compute=local")
    assert answer.code == 2
    assert "error: --set jobs.trian.compute: there is no step `trian`" in answer.err
    assert "hint: did you mean `train`?" in answer.err


def test_a_pipeline_component_is_shown_by_its_steps_and_updated(
    server: ServedWorkspace, yard: Yard
) -> None:
    component = {"name": "both", "type": "pipeline", "jobs": PIPELINE["jobs"]}
    Path("both.yml").write_text(yaml.safe_dump(component))
    shown = yard("component", "create", "-f", "both.yml").text
    assert re.search(r"^Type +pipeline$", shown, re.M)
    assert re.search(r"^Steps +nap, prep, train$", shown, re.M)
    assert re.search(r"^both +1 +pipeline ", yard("component", "list").text, re.M)
    updated = yard("component", "update", "-f", "both.yml", "--description", "two of them")
    assert updated.code == 0 and "two of them" in yard("component", "show", "-n", "both").text


def test_without_reuse_every_step_is_to_run(server: ServedWorkspace, yard: Yard) -> None:
    settings = {"force_rerun": False, "continue_on_step_failure": False}
    Path("pipeline.yml").write_text(yaml.safe_dump({**PIPELINE, "settings": settings}))
    assert yard("job", "create", "-f", "pipeline.yml", "--no-reuse").code == 0
    assert server.document("chain")["settings"] == {**settings, "force_rerun": True}
    Path("job.yml").write_text("command: x\nenvironment: python\ntype: command\n")
    refused = yard("job", "create", "-f", "job.yml", "--no-reuse")
    assert refused.code == 2
    assert refused.err.startswith("error: job.yml:3:1: ") and "\nhint: " in refused.err
