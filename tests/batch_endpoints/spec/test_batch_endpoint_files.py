"""The files of batch endpoints: defaults, what is refused and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.batch_endpoints.spec import deployment_spec, endpoint_spec, invocation, reference
from torchyard.batch_endpoints.spec.settings import BatchSettings

BLUE: dict[str, Any] = {"name": "blue", "endpoint_name": "digits"}
DATA: dict[str, Any] = {"inputs": {"data": {"path": "azureml:images:1"}}}


def refused(read: Any, document: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as raised:
        read(document)
    return raised.value


def test_an_endpoint_has_azures_defaults() -> None:
    spec = endpoint_spec.read({"name": "digits", "auth_mode": "aad_token", "kind": "Batch"})
    assert spec.default_deployment is None
    document = {"name": "digits", "defaults": {"deployment_name": "blue"}}
    assert endpoint_spec.read(document).default_deployment == "blue"


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"auth_mode": "key"}, ("auth_mode",)),
        ({"identity": {"type": "user_assigned"}}, ("identity",)),
        ({"public_network_access": "disabled"}, ("public_network_access",)),
        ({"traffic": {"blue": 100}}, ("traffic",)),
        ({"defaults": {"deployment": "x"}}, ("defaults", "deployment")),
        ({"defaults": {"deployment_name": 3}}, ("defaults", "deployment_name")),
        ({"defaults": "blue"}, ("defaults",)),
        ({"name": "a--b"}, ("name",)),
        ({"scoring_uri": "https://x"}, ("scoring_uri",)),
    ],
)
def test_an_endpoints_key_is_refused_at_its_place(change: Any, at: tuple[str, ...]) -> None:
    error = refused(endpoint_spec.read, {"name": "digits", **change})
    assert tuple(error.at) == at and error.hint


def test_a_deployment_has_azures_defaults() -> None:
    spec = deployment_spec.read(BLUE)
    assert spec.settings == BatchSettings(10, 1, "append_row", "predictions.csv", 3, 30, -1, "info")
    assert spec.resources.instance_count == 1 and spec.compute == ""
    assert spec.splits_failed_batches


def test_a_deployment_is_read_as_azure_writes_it() -> None:
    spec = deployment_spec.read(
        {
            **BLUE,
            "type": "model",
            "model": {"name": "mnist", "path": "model"},
            "code_configuration": {"code": "code", "scoring_script": "batch_driver.py"},
            "environment": {"image": "mcr.microsoft.com/x:latest", "conda_file": "conda.yaml"},
            "environment_variables": {"A": "1", "B": "2"},
            "compute": "azureml:batch-cluster",
            "resources": {"instance_count": 2, "instance_type": "Standard_D"},
            "settings": {
                "max_concurrency_per_instance": 2,
                "mini_batch_size": 5,
                "output_action": "SummaryOnly",
                "output_file_name": "scores.csv",
                "retry_settings": {"max_retries": 0, "timeout": "PT5M"},
                "error_threshold": 10,
                "logging_level": "Warning",
                "environment_variables": {"B": "3"},
            },
        }
    )
    assert spec.settings == BatchSettings(5, 2, "summary_only", "scores.csv", 0, 300, 10, "warning")
    assert spec.compute == "batch-cluster" and spec.resources.instance_count == 2
    assert spec.environment_variables == {"A": "1", "B": "3"}


def test_the_older_form_has_its_settings_at_the_top() -> None:
    older = {**BLUE, "mini_batch_size": 7, "retry_settings": {"timeout": 9}}
    settings = deployment_spec.read(older).settings
    assert (settings.mini_batch_size, settings.timeout_s) == (7, 9)
    error = refused(deployment_spec.read, {**older, "settings": {"mini_batch_size": 8}})
    assert tuple(error.at) == ("mini_batch_size",) and "twice" in error.message


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"type": "pipeline", "component": "x"}, ("type",)),
        ({"job_definition": "azureml:x"}, ("job_definition",)),
        ({"partition_keys": ["a"]}, ("partition_keys",)),
        ({"instance_count": 2}, ("instance_count",)),
        ({"resources": {"instance_count": 0}}, ("resources", "instance_count")),
        ({"settings": {"mini_batch_size": 0}}, ("settings", "mini_batch_size")),
        ({"settings": {"mini_batch_size": "10kb"}}, ("settings", "mini_batch_size")),
        ({"settings": {"error_threshold": -2}}, ("settings", "error_threshold")),
        ({"settings": {"output_action": "append"}}, ("settings", "output_action")),
        ({"settings": {"output_file_name": "../x"}}, ("settings", "output_file_name")),
        ({"settings": {"output_file_name": ".."}}, ("settings", "output_file_name")),
        ({"settings": {"retries": 1}}, ("settings", "retries")),
        (
            {"settings": {"retry_settings": {"timeout": "soon"}}},
            ("settings", "retry_settings", "timeout"),
        ),
        (
            {"settings": {"environment_variables": {"A=": "b"}}},
            ("settings", "environment_variables", "A="),
        ),
        ({"code_configuration": {"code": "."}}, ("code_configuration",)),
        (
            {"code_configuration": {"code": ".", "scoring_script": "../x.py"}},
            ("code_configuration", "scoring_script"),
        ),
        ({"torchyard": {"split": True}}, ("torchyard", "split")),
        ({"compute": 3}, ("compute",)),
    ],
)
def test_a_deployments_key_is_refused_at_its_place(change: Any, at: tuple[str, ...]) -> None:
    error = refused(deployment_spec.read, {**BLUE, **change})
    assert tuple(error.at) == at and error.hint


def test_an_invocation_has_one_input_and_may_change_the_settings() -> None:
    request = invocation.read({**DATA, "mini_batch_size": 20, "instance_count": 3})
    assert request.input == {"type": "uri_folder", "path": "azureml:images:1", "mode": "ro_mount"}
    assert request.changes == {"mini_batch_size": 20} and request.instance_count == 3
    table = invocation.read({"inputs": {"x": {"type": "MLTable", "path": "t"}}})
    assert table.input["mode"] == "eval_mount"
    assert invocation.read({"inputs": {"x": "./data"}}).input["path"] == "./data"


@pytest.mark.parametrize(
    ("document", "at"),
    [
        ({}, ("inputs",)),
        ({"inputs": {}}, ("inputs",)),
        ({"inputs": {"a": {"path": "x"}, "b": {"path": "y"}}}, ("inputs",)),
        ({"inputs": {"a": 3}}, ("inputs", "a")),
        ({"inputs": {"a": {"type": "uri_folder"}}}, ("inputs", "a")),
        ({"inputs": {"a": {"path": "x", "type": "string"}}}, ("inputs", "a", "type")),
        ({"inputs": {"a": {"path": "x", "mode": "direct"}}}, ("inputs", "a", "mode")),
        ({**DATA, "outputs": {"other": {}}}, ("outputs",)),
        ({**DATA, "outputs": {"score": {"paths": "x"}}}, ("outputs", "score", "paths")),
        ({**DATA, "settings": {"mini_batch_size": -1}}, ("settings", "mini_batch_size")),
        ({**DATA, "instance_count": 0}, ("instance_count",)),
        ({**DATA, "deployment": "x"}, ("deployment",)),
    ],
)
def test_an_invocations_key_is_refused_at_its_place(document: Any, at: tuple[str, ...]) -> None:
    error = refused(invocation.read, document)
    assert tuple(error.at) == at and error.hint


@pytest.mark.parametrize("document", [None, [], "x", 3])
@pytest.mark.parametrize(
    "read", [endpoint_spec.read, deployment_spec.read, invocation.read], ids=["e", "d", "i"]
)
def test_what_is_no_mapping_is_refused(read: Any, document: Any) -> None:
    assert "mapping" in refused(read, document).message


def test_the_page_of_keys_is_current() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "batch-endpoint-file.md"
    assert page.read_text() == reference.page(), "run `make docs`"
