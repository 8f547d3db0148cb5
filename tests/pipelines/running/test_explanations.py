"""What is said of a step that ran or was reused; going on from what failed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from jobs import support
from pipelines.running.pipeline_lab import PipelineLab, source, step, taking
from torchyard.base.blobs import SnapshotFile
from torchyard.base.errors import Conflict
from torchyard.jobs.records.types import Status
from torchyard.pipelines import actions

TWO = {"a": source("a"), "b": taking("b", "a")}


def code(lab: PipelineLab, **files: str) -> str:
    """A snapshot of files with these contents; `__` in a name is a slash."""
    blobs = lab.services.blobs.of("default")
    entries = [
        SnapshotFile(
            f"{name.replace('__', '/')}.py", blobs.put_bytes(text.encode()), len(text.encode())
        )
        for name, text in files.items()
    ]
    return f"snapshot:{blobs.put_snapshot({'files': [asdict(each) for each in entries]}).id}"


def explained(lab: PipelineLab) -> dict[str, list[str]]:
    found = actions.explain(lab.services, lab.pipeline)
    return {each.step: list(each.reasons) for each in found}


def run(lab: PipelineLab, name: str, jobs: dict[str, Any], **keys: Any) -> None:
    lab.name = name
    lab.create(jobs, **keys)
    lab.run()


def test_a_first_step_and_a_reused_one_say_so(lab: PipelineLab) -> None:
    run(lab, "p", TWO)
    first = "no earlier pipeline of `me` in experiment `Default` has run this step"
    assert explained(lab) == {"a": [first], "b": [first]}
    run(lab, "q", TWO)
    assert explained(lab)["b"] == ["reused from job `p_b` of pipeline `p`"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"command": "other ${{outputs.data}}"}, "the command was `a ${{outputs.data}}` and is"),
        ({"environment_variables": {"SEED": "2"}}, "environment variable `SEED` is new"),
        ({"inputs": {"lr": 0.2}}, "input `lr` is new"),
        ({"outputs": {"data": {"mode": "upload"}}}, "mode of output `data` was "),
        (
            {"distribution": {"type": "pytorch"}},
            "setting `distribution.type` is new: `pytorch`",
        ),
    ],
)
def test_what_changed_is_named(lab: PipelineLab, changed: dict[str, Any], says: str) -> None:
    run(lab, "p", {"a": source("a")})
    run(lab, "q", {"a": {**source("a"), **changed}})
    assert any(reason.startswith(says) for reason in explained(lab)["a"]), explained(lab)


def test_of_long_commands_the_part_that_differs_is_shown(lab: PipelineLab) -> None:
    words = " ".join(f"--option-{number} {number}" for number in range(30))
    run(lab, "p", {"a": source(f"train {words} --last 1")})
    run(lab, "q", {"a": source(f"train {words} --last 2")})
    assert explained(lab)["a"] == [
        "the command was `…option-29 29 --last 1 ${{outputs.data}}` and is "
        "`…option-29 29 --last 2 ${{outputs.data}}`"
    ]


def test_a_changed_file_and_a_changed_value_are_named(lab: PipelineLab) -> None:
    before = code(lab, train="1", lib__data="x", gone="g")
    run(lab, "p", {"a": source("a", code=before, inputs={"lr": 0.1})})
    after = code(lab, train="2", lib__moved="x", new="n")
    run(lab, "q", {"a": source("a", code=after, inputs={"lr": 0.2})})
    assert explained(lab)["a"] == [
        "`gone.py` of the code is gone",
        "`lib/moved.py` of the code was `lib/data.py`",
        "`new.py` of the code is new",
        "`train.py` of the code differs",
        "input `lr` was `0.1` and is `0.2`",
    ]


def test_data_that_changed_is_named_by_its_file(lab: PipelineLab) -> None:
    for name, text in (("p", "1"), ("q", "2")):
        data = {"path": code(lab, rows=text, same="s"), "type": "uri_folder"}
        run(lab, name, {"a": source("a", inputs={"table": data})})
    assert explained(lab)["a"] == ["the content of input `table` differs: `rows.py` differs"]


def test_forced_steps_and_failed_ones_say_why_they_ran(lab: PipelineLab) -> None:
    lab.create({"a": source("a")})
    lab.round()
    lab.fail("a")
    lab.round()
    run(lab, "q", {"a": source("a")})
    assert explained(lab)["a"] == ["job `p_a` with the same inputs failed"]
    run(lab, "r", {"a": source("a")}, settings={"force_rerun": True})
    assert explained(lab)["a"] == ["the pipeline has `force_rerun`"]


def test_a_command_job_is_compared_with_the_last_of_its_experiment(lab: PipelineLab) -> None:
    support.submit(lab.services, name="one", command="train --lr 1", environment="python")
    two = support.submit(lab.services, name="two", command="train --lr 2", environment="python")
    (found,) = actions.explain(lab.services, two)
    assert found.other == "one"
    assert found.reasons == ("the command was `train --lr 1` and is `train --lr 2`",)


def test_a_retry_keeps_what_completed_also_twice(lab: PipelineLab) -> None:
    jobs = {"a": source("a"), "b": taking("b", "a"), "c": taking("c", "b"), "d": taking("d", "c")}
    lab.create(jobs)
    with pytest.raises(Conflict):
        actions.retry(lab.services, lab.pipeline, lab.pipeline.document, support.ME)
    for name in ("a", "b"):
        lab.round()
        lab.complete(name)
    lab.round()
    lab.fail("c")
    lab.round()
    assert lab.pipeline.status is Status.FAILED
    mended = {**jobs, "a": source("changed, too"), "c": taking("mended", "b")}
    named = {"type": "pipeline", "name": "p", "jobs": jobs}
    renamed, is_new = actions.retry(lab.services, lab.pipeline, named, support.ME)
    assert is_new and renamed.name != "p"
    document = {"type": "pipeline", "name": "q", "jobs": mended}
    actions.retry(lab.services, lab.pipeline, document, support.ME)
    lab.name = "q"
    lab.round()
    assert lab.running() == ["c"]
    assert {name: row.child_name for name, row in lab.steps.items() if row.reused_from} == {
        "a": "p_a",
        "b": "p_b",
    }
    lab.complete("c")
    lab.round()
    lab.fail("d")
    lab.round()
    retried, _ = actions.retry(lab.services, lab.pipeline, {**document, "name": "r"}, support.ME)
    lab.name = retried.name
    lab.round()
    assert lab.running() == ["d"]
    lab.complete("d")
    lab.round()
    assert not lab.running()
    assert {row.child_name for row in lab.steps.values()} == {"p_a", "p_b", "q_c", "r_d"}


def test_of_a_fan_out_only_what_failed_runs_again(lab: PipelineLab) -> None:
    items = {f"item{number}": step(f"work {number}") for number in range(6)}
    lab.create(items)
    lab.round()
    for name in lab.running():
        lab.fail(name) if name == "item3" else lab.complete(name)
    lab.run()
    retried, _ = actions.retry(lab.services, lab.pipeline, lab.pipeline.document, support.ME)
    lab.name = retried.name
    lab.round()
    assert lab.running() == ["item3"]
