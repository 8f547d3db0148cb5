"""Pipelines that are written as Python functions: the documents that come of them, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.served_workspace import ServedWorkspace
from sentences import Sentence
from torchyard import Input, Output, command, load_component, pipeline
from torchyard.base.errors import InvalidInput
from torchyard.client.pipeline_steps import LoadedComponent

PREP: dict[str, Any] = {
    "name": "prep",
    "command": "python prep.py ${{inputs.rows}} ${{outputs.data}}",
    "environment": "python",
    "inputs": {"rows": {"type": "integer", "default": 10}},
    "outputs": {"data": {"type": "uri_folder"}},
}
TRAIN: dict[str, Any] = {
    "name": "train",
    "command": "python train.py ${{inputs.data}} ${{inputs.lr}} ${{outputs.model}}",
    "environment": "python",
    "inputs": {"data": {"type": "uri_folder"}, "lr": {"type": "number", "default": 0.1}},
    "outputs": {"model": {"type": "uri_folder"}},
}


@pytest.fixture
def load(tmp_path: Path) -> Callable[[dict[str, Any]], LoadedComponent]:
    """A component from a file with this document."""

    def loaded(document: dict[str, Any]) -> LoadedComponent:
        file = tmp_path / f"{document['name']}.yml"
        file.write_text(yaml.safe_dump(document))
        return load_component(file)

    return loaded


Load = Callable[[dict[str, Any]], LoadedComponent]


def test_parameters_are_inputs_calls_are_steps_and_what_is_returned_are_outputs(load: Load) -> None:
    prep, train = load(PREP), load(TRAIN)

    @pipeline(display_name="digits", default_compute="gpu")
    def digits(lr, rows=5):  # type: ignore[no-untyped-def]
        prepared = prep(rows)
        trained = train(data=prepared.outputs.data, lr=lr)
        return {"model": trained.outputs.model}

    assert digits(lr=0.2).to_dict() == {
        "type": "pipeline",
        "display_name": "digits",
        "settings": {"default_compute": "gpu"},
        "inputs": {"lr": 0.2, "rows": 5},
        "outputs": {"model": {"type": "uri_folder"}},
        "jobs": {
            "prepared": {
                "component": str(prep.path),
                "inputs": {"rows": "${{parent.inputs.rows}}"},
            },
            "trained": {
                "component": str(train.path),
                "inputs": {
                    "data": "${{parent.jobs.prepared.outputs.data}}",
                    "lr": "${{parent.inputs.lr}}",
                },
                "outputs": {"model": {"path": "${{parent.outputs.model}}"}},
            },
        },
    }


def test_a_step_is_changed_after_it_was_bound_to(load: Load) -> None:
    prep, train = load(PREP), load(TRAIN)

    @pipeline
    def changed() -> None:
        prepared = prep()
        trained = train(data=prepared.outputs.data)
        prepared.name = "read"
        prepared.outputs.data = Output(mode="upload")
        trained.inputs.lr = 0.5
        trained.compute = "gpu"
        trained.resources["instance_count"] = 2

    jobs = changed().document["jobs"]
    assert jobs["read"]["outputs"] == {"data": {"type": "uri_folder", "mode": "upload"}}
    step = jobs["trained"]
    assert step["inputs"] == {"data": "${{parent.jobs.read.outputs.data}}", "lr": 0.5}
    assert (step["compute"], step["resources"]) == ("gpu", {"instance_count": 2})


def test_a_step_that_no_variable_holds_is_named_after_its_component(load: Load) -> None:
    prep = load(PREP)

    @pipeline
    def several() -> None:
        prep_2 = prep()
        for _ in range(2):
            prep()
        named = prep()
        named.name = "last"
        assert prep_2 is not named

    assert list(several().document["jobs"]) == ["prep_2", "prep", "prep_3", "last"]


def test_a_job_of_its_own_is_a_step_with_the_inputs_that_it_has(load: Load) -> None:
    prep = load(PREP)
    show = command(
        command="ls ${{inputs.data}}; echo ${{inputs.word}} > ${{outputs.seen}}/word",
        environment="python",
        inputs={"data": Input(), "word": "hi"},
        outputs={"seen": Output()},
        display_name="look at it",
    )

    @pipeline
    def looked() -> None:
        show(data=prep().outputs.data)

    step = looked().document["jobs"]["look_at_it"]
    assert step["type"] == "command" and "component" not in step
    assert step["inputs"] == {"data": "${{parent.jobs.prep.outputs.data}}", "word": "hi"}
    assert step["outputs"] == {"seen": {"type": "uri_folder"}}


def test_a_pipeline_in_another_is_a_component_with_the_types_of_its_arguments(load: Load) -> None:
    prep, train = load(PREP), load(TRAIN)

    @pipeline
    def training(data, lr, rate=None):  # type: ignore[no-untyped-def]
        assert rate is None
        return {"best": train(data=data, lr=lr).outputs.model}

    @pipeline
    def outer(lr):  # type: ignore[no-untyped-def]
        inner = training(data=prep().outputs.data, lr=lr)
        return {"model": inner.outputs.best}

    step = outer(lr=1e-3).document["jobs"]["inner"]
    component = step["component"]
    assert component["inputs"] == {"data": {"type": "uri_folder"}, "lr": {"type": "number"}}
    assert component["jobs"]["train"]["outputs"] == {"model": {"path": "${{parent.outputs.best}}"}}
    assert step["outputs"] == {"best": {"path": "${{parent.outputs.model}}"}}


def test_the_server_takes_it_with_components_of_the_workspace_and_of_files(
    server: ServedWorkspace, load: Load
) -> None:
    with server.client() as client:
        client.components.create(PREP)
        prep, train = client.components.get("prep"), load(TRAIN)

        @pipeline
        def training(data, lr):  # type: ignore[no-untyped-def]
            return {"model": train(data=data, lr=lr).outputs.model}

        @pipeline(name="built")
        def outer(lr, rows=3):  # type: ignore[no-untyped-def]
            return {"model": training(prep(rows=rows).outputs.data, lr).outputs.model}

        client.jobs.create(outer(lr=0.5))
        steps = client.pipelines.steps("built")
    assert [(step.name, step.component) for step in steps] == [
        ("prep", "prep:1"), ("training.train", "")
    ]  # fmt: skip


def twice(prep: LoadedComponent, train: LoadedComponent) -> Any:
    step = train(data=prep().outputs.data)
    return {"a": step.outputs.model, "b": step.outputs.model}


def same_names(prep: LoadedComponent, train: LoadedComponent) -> None:
    prep().name = prep().name = "same"


WRONG: dict[str, Callable[[LoadedComponent, LoadedComponent], Any]] = {
    "an input that the component lacks": lambda prep, train: train(dat=1),
    "an input without a value": lambda prep, train: train(lr=1) and None,
    "an unknown output": lambda prep, train: train(data=prep().outputs.dta),
    "a step as an input": lambda prep, train: train(data=prep()) and None,
    "too many inputs": lambda prep, train: prep(1, 2),
    "no mapping is returned": lambda prep, train: prep().outputs.data,
    "a step is returned": lambda prep, train: {"data": prep()},
    "an output is returned twice": twice,
    "two steps of one name": same_names,
    "no steps": lambda prep, train: None,
    "an unknown key of a step": lambda prep, train: setattr(prep(), "compte", "x"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_in_the_function_is_told(load: Load, sentence: Sentence, wrong: str) -> None:
    prep, train = load(PREP), load(TRAIN)

    @pipeline
    def digits() -> Any:
        return WRONG[wrong](prep, train)

    with pytest.raises(InvalidInput) as caught:
        digits()
    sentence.is_of(caught.value)


@pytest.mark.parametrize("values", [{}, {"row": 1}, {"rows": 1}], ids=["none", "other", "asked"])
def test_what_is_wrong_with_an_argument_is_told(
    load: Load, sentence: Sentence, values: dict[str, int]
) -> None:
    prep = load(PREP)

    @pipeline
    def digits(rows):  # type: ignore[no-untyped-def]
        if rows:
            prep(rows=rows)

    with pytest.raises(InvalidInput) as caught:
        digits(**values)
    sentence.is_of(caught.value)


def test_a_step_of_another_pipeline_is_refused(load: Load, sentence: Sentence) -> None:
    prep, train = load(PREP), load(TRAIN)
    steps: list[Any] = []

    @pipeline
    def first() -> None:
        steps.append(prep())

    @pipeline
    def second() -> None:
        train(data=steps[0].outputs.data)

    first()
    with pytest.raises(InvalidInput) as caught:
        second()
    sentence.is_of(caught.value)


def test_a_component_is_called_in_a_pipeline_alone(load: Load, sentence: Sentence) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(PREP)()
    sentence.is_of(caught.value)


def test_a_missing_file_of_a_component_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"train\.yml` does not exist"):
        load_component(tmp_path / "train.yml")
