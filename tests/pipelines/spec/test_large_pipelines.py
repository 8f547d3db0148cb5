"""Pipelines as large as they may be, and larger: the work grows with the file, no faster."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pipelines.spec.pipeline_lab import OWN, PREP, TRAIN, PipelineLab, of_inputs, pipeline
from steps import at_most
from torchyard.base.errors import InvalidSpec
from torchyard.pipelines.spec.pipeline_file import MOST_STEPS

# Takes what another such step makes.
LINK: dict[str, Any] = {
    **OWN,
    "command": "cp -r $[[${{inputs.x}}]] ${{outputs.y}}",
    "inputs": {"x": {"type": "uri_folder", "optional": True}},
    "outputs": {"y": {"type": "uri_folder"}},
}


def chain(count: int, is_backward: bool = False) -> dict[str, Any]:
    jobs: dict[str, Any] = {"s0": {"component": LINK}}
    for number in range(1, count):
        bound = {"x": f"${{{{parent.jobs.s{number - 1}.outputs.y}}}}"}
        jobs[f"s{number}"] = {"component": LINK, "inputs": bound}
    return pipeline(jobs=dict(reversed(jobs.items())) if is_backward else jobs)


def linear(lab: PipelineLab, document: Callable[[int], Any], count: int) -> None:
    """Four times as much takes little more than four times as long."""

    def check(size: int) -> Callable[[], object]:
        def act() -> None:
            try:
                lab.check(made)
            except InvalidSpec:
                pass

        made = document(size)
        return act

    check(2)()  # what is made once
    lines = at_most(10_000_000, check(count))
    at_most(5 * lines, check(4 * count))


@pytest.mark.parametrize("is_backward", [False, True])
def test_a_long_chain(lab: PipelineLab, is_backward: bool) -> None:
    steps = lab.check(chain(MOST_STEPS, is_backward)).plan.steps
    assert [step.name for step in steps] == [f"s{number}" for number in range(MOST_STEPS)]
    linear(lab, lambda count: chain(count, is_backward), 20)


@pytest.mark.parametrize("is_backward", [False, True])
def test_a_long_chain_of_inputs(lab: PipelineLab, is_backward: bool) -> None:
    def document(count: int) -> Any:
        jobs: dict[str, Any] = {"s0": {**OWN, "inputs": {"x": 7}}}
        for number in range(1, count):
            bound = {"x": f"${{{{parent.jobs.s{number - 1}.inputs.x}}}}"}
            jobs[f"s{number}"] = {**OWN, "inputs": bound}
        return pipeline(jobs=dict(reversed(jobs.items())) if is_backward else jobs)

    checked = lab.check(document(MOST_STEPS))
    assert {step.document["inputs"]["x"] for step in checked.plan.steps} == {7}
    linear(lab, document, 20)


def test_a_long_circle(lab: PipelineLab) -> None:
    document = chain(MOST_STEPS)
    document["jobs"]["s0"]["inputs"] = {"x": f"${{{{parent.jobs.s{MOST_STEPS - 1}.outputs.y}}}}"}
    error = lab.refused(document)
    assert error.code == "cyclic_reference" and len(error.message) < 300


def test_ten_thousand_steps_are_too_many(lab: PipelineLab, sentence: Any) -> None:
    document = pipeline(jobs={f"s{number}": OWN for number in range(10_000)})
    at_most(20_000, lambda: lab.refused(document))
    error = lab.refused(document)
    assert error.at == ("jobs",) and not error.others
    sentence.is_of(error)


def test_one_step_takes_what_all_others_make(lab: PipelineLab) -> None:
    def document(count: int) -> Any:
        jobs: dict[str, Any] = {f"s{number}": {"component": LINK} for number in range(count)}
        bound = {f"x{n}": f"${{{{parent.jobs.s{n}.outputs.y}}}}" for n in range(count)}
        jobs["last"] = {**OWN, "inputs": bound}
        return pipeline(jobs=jobs)

    assert len(lab.step(document(500), "last").takes) == 500
    linear(lab, document, 20)


@pytest.mark.parametrize(
    "put",
    [
        lambda node, entries: node.update(entries),
        lambda node, entries: node.update(inputs=entries),
        lambda node, entries: node.update(outputs=entries),
        lambda node, entries: node.update(component={**TRAIN, **entries}),
        lambda node, entries: node.update(component={**TRAIN, "inputs": entries}),
        lambda node, entries: node.update(limits=entries),
        lambda node, entries: node.update(torchyard=entries),
    ],
    ids=["keys", "inputs", "outputs", "of a component", "ports", "limits", "torchyard"],
)
def test_a_hundred_thousand_unknown_keys(lab: PipelineLab, put: Any) -> None:
    def document(count: int) -> Any:
        node: dict[str, Any] = {"component": PREP}
        put(node, {f"key_{number}": {"a": 1} for number in range(count)})
        return pipeline(jobs={"a": node})

    faults = lab.faults(document(100_000))
    assert faults and all(place.startswith("jobs.a.") for place, _ in faults)
    linear(lab, document, 200)


def test_a_hundred_thousand_unknown_keys_of_the_pipeline(lab: PipelineLab) -> None:
    keys = {f"key_{number}": 1 for number in range(100_000)}
    for document in (
        pipeline(jobs={"a": OWN}, **keys),
        pipeline(jobs={"a": OWN}, settings=keys),
        pipeline(component={"type": "pipeline", "jobs": {"a": OWN}}, inputs=keys),
        pipeline(component={"type": "pipeline", "jobs": {"a": OWN}}, outputs=keys),
    ):
        at_most(8_000_000, partial(lab.refused, document))


@pytest.mark.parametrize(
    "text",
    [
        *("x" * 60_000, "${{" * 20_000, "${{parent." * 6_000, "${{" + " " * 60_000),
        *("${{parent.inputs." + "a" * 60_000 + "}}", "${{parent.inputs." + "a." * 30_000 + "}}"),
        *("}}" * 30_000 + "${{parent.inputs.x}}", " " * 60_000 + "${{parent.inputs.x"),
        *("9" * 60_000, "/subscriptions/" * 4_000, "azureml:" + "/workspaces/" * 5_000),
    ],
    ids=range(11),
)
def test_long_texts(lab: PipelineLab, text: str) -> None:
    number = of_inputs(x={"type": "integer"})
    wrong: list[dict[str, Any]] = [
        {"component": text},
        {"component": number, "inputs": {"x": text}},
        {"component": number, "inputs": {text: 1}},
        {**OWN, "outputs": {"x": "${{parent.outputs." + text}},
        {**OWN, "compute": "${{parent.inputs." + text},
        {**OWN, "limits": {"timeout": text}},
        {**OWN, text: 1},
    ]
    for node in wrong:
        document = pipeline(jobs={"a": node})
        error = lab.refused(document)  # the first one builds the models, too
        at_most(20_000, partial(lab.refused, document))
        for each in (error, *error.others):
            assert len(each.message) < 1_000 and len(each.hint) < 1_000
    lab.refused(pipeline(jobs={text: OWN}))


@pytest.mark.parametrize("depth", [150, 900, 5_000])
@pytest.mark.parametrize("key", ["component", "inputs", "environment_variables", "resources", "x"])
def test_what_is_nested_deeply(lab: PipelineLab, depth: int, key: str) -> None:
    value: Any = 1
    for _ in range(depth):
        value = {"component": value, "type": "pipeline"} if key == "component" else {"a": value}
    node = {**OWN, key: value} if key != "component" else {key: value}
    assert lab.refused(pipeline(jobs={"a": node})).at[:1] in (("jobs",), ())


def test_a_file_that_is_refused_says_so_in_json(lab: PipelineLab) -> None:
    document = pipeline(jobs={"a": {**OWN, 5: 1, "\ud800": 2}})
    json.dumps(lab.refused(document).to_json())
