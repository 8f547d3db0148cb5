"""No environment of the catalogue lacks a component of the documents without saying so."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from torchyard.base.errors import NotFound
from torchyard.environments import definition
from torchyard.environments.names import components, curated_environments
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.types import Platform

LINUX = Platform("linux", "x86_64", "cpu")
FAMILY = [curated for curated in curated_environments.every() if components.promises(curated)]
TESTED = [curated for curated in curated_environments.every() if components.runs(curated.name)]
STEPS = Path(components.__file__).parents[1] / "selftest" / "in_environment"

# As the documents list them, and Azure's own file.
NAMED = {
    *("PyTorch", "torchvision", "torchaudio", "DeepSpeed", "ONNX", "ONNX Runtime"),
    *("ONNX Runtime training", "ORTModule", "ORT MoE", "Horovod", "fairscale", "MSCCL", "Nebula"),
    *("PyTorch Lightning", "torchmetrics", "TensorBoard", "protobuf", "PySpark", "pytest"),
    *("MLflow", "transformers", "Accelerate", "Lightning"),
    *("azureml-dataset-runtime", "azureml-inference-server-http", "inference-schema", "ipykernel"),
    *("debugpy", "py-spy", "torch-tb-profiler", "pybind11"),
    *("azureml-defaults", "azureml-contrib-services", "azure-ml-component"),
}


def test_every_named_component_is_in_the_list() -> None:
    assert {component.name for component in components.every()} == NAMED


def test_the_catalogue_has_the_newest_three_and_those_that_documents_and_examples_name() -> None:
    minors = {curated.name.split("-")[2] for curated in FAMILY}
    assert minors == {"2.15", "2.14", "2.13", "2.8", "2.0", "1.12"}


@pytest.mark.parametrize("curated", FAMILY, ids=lambda curated: curated.name)
def test_each_component_is_installed_a_layer_or_unavailable_with_a_reason(curated: Curated) -> None:
    contents = components.components_of(curated)
    assert {entry.component.name for entry in contents} == NAMED
    for entry in contents:
        if entry.state == "unavailable":
            assert entry.reason and entry.instead and not entry.version
        else:
            assert entry.version and entry.package in entry.component.packages
            assert ("+torchyard" in entry.version) == (entry.state == "layer")


def test_scripts_import_what_azures_own_file_adds_where_it_fits_the_numpy() -> None:
    added = {"azureml-inference-server-http", "inference-schema", "ipykernel", "debugpy"}
    added |= {"torch-tb-profiler", "pybind11", "lightning"}
    for curated in FAMILY:
        versions = dict(line.split("==") for line in curated.packages)
        assert added <= set(versions), curated.name
        assert versions["lightning"] == versions["pytorch-lightning"], curated.name
        numpy = tuple(int(part) for part in versions["numpy"].split("."))
        assert ("azureml-dataset-runtime" in versions) == (numpy < (2, 3, 3)), curated.name


@pytest.mark.parametrize("curated", FAMILY, ids=lambda curated: curated.name)
def test_a_reason_stands_only_for_what_is_missing(curated: Curated) -> None:
    missing = {
        component.component.name
        for component in components.components_of(curated)
        if component.state == "unavailable"
    }
    assert set(curated.unavailable) <= missing
    for name, explanation in curated.needs_gpu.items():
        assert name not in missing and set(explanation) == {"reason", "instead"}


def test_a_component_that_is_missing_without_a_reason_is_found() -> None:
    gap = dataclasses.replace(FAMILY[0], contents={}, locked=("six==1.17.0",), unavailable={})
    with pytest.raises(ValueError, match="lacks PyTorch"):
        components.components_of(gap)


def test_each_component_has_a_step() -> None:
    functions = {
        node.name
        for file in STEPS.glob("*_steps.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    steps = [component.step for component in components.every() if component.step]
    assert len(steps) == len(set(steps)) and set(steps) <= functions
    held = {
        entry.component
        for curated in FAMILY
        for entry in components.components_of(curated)
        if entry.state != "unavailable"
    }
    assert {component for component in components.every() if component.step} == held


@pytest.mark.parametrize("curated", TESTED, ids=lambda curated: curated.name)
def test_recorded_tests_are_of_this_version_and_passed(curated: Curated) -> None:
    for run in components.runs(curated.name):
        assert (run.version, run.differences) == (curated.version, ())
        assert run.distributions == len(curated.packages)
        contents = components.components_of(curated) if components.promises(curated) else ()
        there = {entry.component.name: entry.version for entry in contents if entry.version}
        # A step that was not run is shown as such.
        assert {name: there[name] for name in run.steps} == {
            name: step.version for name, step in run.steps.items()
        }
        assert [name for name, step in run.steps.items() if step.error or not step.result] == []


@pytest.mark.parametrize("entry", components.unresolved(), ids=lambda entry: entry.name)
def test_what_the_catalogue_lacks_is_refused_with_the_reason(entry: components.Unresolved) -> None:
    assert curated_environments.find_by_name(entry.name) is None
    assert curated_environments.find_by_name(entry.instead) is not None
    with pytest.raises(NotFound, match="is not available") as refused:
        definition.resolve(f"azureml:{entry.name}@latest", LINUX)
    assert entry.reason in refused.value.message and f"`{entry.instead}`" in refused.value.hint
