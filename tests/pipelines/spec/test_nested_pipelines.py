"""Pipelines in pipelines, and a pipeline component in place of the steps."""

from __future__ import annotations

from typing import Any

from pipelines.spec.pipeline_lab import OWN, PREP, TRAIN, PipelineLab, pipeline, prep_and_train
from steps import at_most
from torchyard.pipelines.spec.plan import Made, Taken

# Prepares rows, trains on them: as people write it for use in other pipelines.
INNER: dict[str, Any] = {
    "type": "pipeline",
    "inputs": {
        "rows": {"type": "integer", "default": 10},
        "rate": {"type": "number", "optional": True},
    },
    "outputs": {"model": {"type": "uri_folder"}, "table": {"type": "uri_folder"}},
    "jobs": {
        "prep": {
            "component": PREP,
            "inputs": {"rows": "${{parent.inputs.rows}}"},
            "outputs": {"table": "${{parent.outputs.table}}"},
        },
        "train": {
            "component": TRAIN,
            "inputs": {
                "data": "${{parent.jobs.prep.outputs.table}}",
                "rate": "${{parent.inputs.rate}}",
            },
            "outputs": {"model": {"path": "${{parent.outputs.model}}", "mode": "upload"}},
        },
    },
}


def nested(**step: Any) -> dict[str, Any]:
    table = "${{parent.jobs.inner.outputs.table}}"
    jobs = {
        "inner": {"type": "pipeline", "component": INNER, **step},
        "again": {"component": TRAIN, "inputs": {"data": table}},
    }
    return pipeline(jobs=jobs, outputs={"best": {"name": "best", "type": "mlflow_model"}})


def test_the_steps_of_a_nested_pipeline_are_steps(lab: PipelineLab) -> None:
    document = nested(inputs={"rows": 5}, outputs={"model": "${{parent.outputs.best}}"})
    checked = lab.check(document)
    assert [step.name for step in checked.plan.steps] == ["inner.prep", "inner.train", "again"]
    prep, train, again = checked.plan.steps
    assert prep.document["inputs"] == {"rows": 5}
    assert train.takes == {"data": Taken("inner.prep", "table")} and "inputs" not in train.document
    assert again.takes == {"data": Taken("inner.prep", "table")}
    assert train.document["outputs"] == {
        "model": {"type": "mlflow_model", "mode": "upload", "name": "best"}
    }
    assert checked.plan.outputs == {"best": Made("inner.train", "model")}


def test_a_registered_pipeline_names_registered_components(lab: PipelineLab) -> None:
    lab.register("prep", PREP)
    lab.register("train", {**TRAIN, "is_deterministic": False})
    jobs = {
        name: {**step, "component": f"azureml:{name}@latest"}
        for name, step in INNER["jobs"].items()
    }
    lab.register("inner", {**INNER, "jobs": jobs})
    lab.register(
        "outer",
        {
            **INNER,
            "jobs": {
                "deep": {
                    "component": "azureml:inner:1",
                    "inputs": {"rows": "${{parent.inputs.rows}}"},
                    "outputs": {
                        "model": "${{parent.outputs.model}}",
                        "table": "${{parent.outputs.table}}",
                    },
                }
            },
        },
    )
    document = nested(component="azureml:outer@latest")
    prep, train, again = lab.check(document).plan.steps
    assert (prep.name, train.name) == ("inner.deep.prep", "inner.deep.train")
    assert (prep.component, train.component) == ("prep:1", "train:1")
    assert again.takes == {"data": Taken("inner.deep.prep", "table")}
    assert not train.is_deterministic and prep.document["inputs"] == {"rows": 10}


def test_a_component_stands_in_place_of_the_steps(lab: PipelineLab) -> None:
    lab.register("inner", INNER)
    for component in (INNER, "azureml:inner@latest"):
        document = pipeline(
            component=component,
            inputs={"rows": "7", "rate": None},
            outputs={"model": {"mode": "rw_mount", "name": "best"}},
        )
        checked = lab.check(document)
        prep, train = checked.plan.steps
        assert prep.document["inputs"] == {"rows": "7"} and "inputs" not in train.document
        assert train.document["outputs"]["model"]["name"] == "best"
        assert checked.plan.outputs["model"] == Made("train", "model")


def test_faults_of_a_component_in_place_of_the_steps(lab: PipelineLab) -> None:
    document = pipeline(component=INNER, inputs={"rows": "x", "rats": 1}, outputs={"mode": {}})
    assert lab.faults(document) == [
        ("inputs.rows", "type_mismatch"),
        ("inputs.rats", "invalid_spec"),
        ("outputs.mode", "invalid_spec"),
    ]
    lab.register("prep", PREP)
    assert lab.faults(pipeline(component="prep@latest")) == [("component", "invalid_spec")]
    assert lab.faults(pipeline(component="pre@latest")) == [("component", "not_found")]
    needs = {**INNER, "inputs": {"rows": {"type": "integer"}}}
    assert ("inputs", "invalid_spec") in lab.faults(pipeline(component=needs))


def test_compute_of_a_nested_pipeline_is_its_steps_default(lab: PipelineLab) -> None:
    own = {**INNER, "jobs": {**INNER["jobs"], "other": {**OWN, "compute": "auto"}}}
    document = nested(component=own, compute="${{parent.inputs.cluster}}")
    document |= {"inputs": {"cluster": "local"}, "settings": {"default_compute": "gpu"}}
    faults = lab.faults(document)
    assert faults == [
        ("jobs.inner.component.jobs.other.compute", "invalid_spec"),
        ("settings.default_compute", "compute_not_found"),
    ]


def test_places_lie_in_the_file_as_far_as_it_reaches(lab: PipelineLab) -> None:
    wrong = {**INNER["jobs"], "other": {"component": {**PREP, "environment_variables": {"A": [1]}}}}
    deep = {**OWN, "inputs": {"x": "${{parent.inputs.rowz}}"}}
    component = {**INNER, "jobs": {**wrong, "deep": deep}}
    at = "jobs.inner.component.jobs"
    assert [place for place, _ in lab.faults(nested(component=component))] == [
        f"{at}.other.component.environment_variables.A",
        f"{at}.deep.inputs.x",
    ]
    lab.register("inner", {**INNER, "jobs": {**INNER["jobs"], "deep": deep}})
    error = lab.refused(nested(component="inner@latest"))
    assert error.at == ("jobs", "inner", "component") and not error.others
    assert "step `inner.deep`" in error.message


def test_keys_that_only_a_command_has_are_refused_at_a_pipeline(
    lab: PipelineLab, sentence: Any
) -> None:
    error = lab.refused(nested(environment="python"))
    assert error.at == ("jobs", "inner", "environment")
    sentence.is_of(error)


def test_an_output_that_no_step_in_it_makes(lab: PipelineLab, sentence: Any) -> None:
    component = {**INNER, "outputs": {**INNER["outputs"], "lost": {"type": "uri_folder"}}}
    document = nested(component=component)
    document["jobs"]["again"]["inputs"]["data"] = "${{parent.jobs.inner.outputs.lost}}"
    error = lab.refused(document)
    assert error.at == ("jobs", "again", "inputs", "data") and not error.others
    sentence.is_of(error)


def test_steps_of_two_pipelines_that_wait_for_each_other(lab: PipelineLab) -> None:
    inner = {**INNER, "inputs": {**INNER["inputs"], "x": {"type": "uri_folder"}}}
    inner["jobs"] = {**INNER["jobs"], "prep": {**INNER["jobs"]["prep"], "component": {
        **PREP, "inputs": {**PREP["inputs"], "x": {"type": "uri_folder"}}}}}  # fmt: skip
    inner["jobs"]["prep"]["inputs"] = {"x": "${{parent.inputs.x}}"}
    document = nested(component=inner, inputs={"x": "${{parent.jobs.again.outputs.model}}"})
    (fault,) = lab.faults(document)
    assert fault[1] == "cyclic_reference"


def test_a_registered_pipeline_that_names_itself(lab: PipelineLab, sentence: Any) -> None:
    own = {"type": "pipeline", "jobs": {"a": {"component": "p@latest"}, "b": {"component": "p:1"}}}
    lab.register("p", own)
    error = lab.refused(pipeline(jobs={"x": {"component": "p:1"}}))
    assert error.at == ("jobs", "x", "component") and error.code == "cyclic_reference"
    sentence.is_of(error)


def test_pipelines_are_nested_as_deep_as_that(lab: PipelineLab, sentence: Any) -> None:
    def deep(levels: int) -> Any:
        component: dict[str, Any] = {"type": "pipeline", "jobs": {"a": OWN}}
        for _ in range(levels):
            component = {"type": "pipeline", "jobs": {"a": {"component": component}}}
        return pipeline(jobs={"a": {"component": component}})

    (step,) = lab.check(deep(18)).plan.steps
    assert step.name == ".".join(["a"] * 20)
    error = lab.refused(deep(30))
    assert error.code == "invalid_spec" and error.at[:2] == ("jobs", "a")
    sentence.is_of(error)


def test_pipelines_that_double_at_each_level_are_given_up(lab: PipelineLab, sentence: Any) -> None:
    lab.register("p0", {"type": "pipeline", "jobs": {"a": OWN, "b": OWN}})
    for level in range(1, 16):
        below = {"component": f"p{level - 1}:1"}
        lab.register(f"p{level}", {"type": "pipeline", "jobs": {"a": below, "b": below}})
    document = pipeline(jobs={"a": {"component": "p15:1"}})
    at_most(6_000_000, lambda: lab.refused(document))
    error = lab.refused(document)
    assert error.at == ("jobs", "a", "component") and not error.others
    sentence.is_of(error)


def test_a_step_says_of_which_type_its_component_is(lab: PipelineLab) -> None:
    document = prep_and_train(prep__component=INNER, prep__type="command")
    document["jobs"]["train"] = {"component": PREP, "type": "pipeline"}
    assert lab.faults(document) == [
        ("jobs.prep.type", "invalid_spec"),
        ("jobs.train.type", "invalid_spec"),
    ]
