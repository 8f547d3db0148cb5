"""The files of endpoints and deployments: defaults, what is refused and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.endpoints.spec import deployment_spec, endpoint_spec, reference
from torchyard.endpoints.spec.data_collection import Collection
from torchyard.endpoints.spec.settings import Batching, Probe, RequestSettings

BLUE: dict[str, Any] = {"name": "blue", "endpoint_name": "digits"}


ROUTES: dict[str, Any] = {
    "liveness_route": {"port": 5001, "path": "/"},
    "readiness_route": {"port": 5001, "path": "/"},
    "scoring_route": {"port": 5001, "path": "/score"},
}
CODE: dict[str, Any] = {"code_configuration": {"code": "c", "scoring_script": "score.py"}}


def refused(document: Any, of_endpoint: bool = False) -> InvalidSpec:
    read: Any = endpoint_spec.read if of_endpoint else deployment_spec.read
    with pytest.raises(InvalidSpec) as raised:
        read(document)
    return raised.value


def test_an_endpoint_has_its_defaults() -> None:
    spec = endpoint_spec.read({"name": "digits", "$schema": "x", "kind": "Managed"})
    assert (spec.auth_mode, spec.traffic, spec.mirror_traffic) == ("key", None, None)


@pytest.mark.parametrize(
    "name", ["ab", "a" * 33, "1ab", "a--b", "ab-", "-ab", "a_b", "äbc", "", "a\nb", "a b c"]
)
def test_a_name_out_of_grammar_is_refused(name: str) -> None:
    assert "name" in refused({"name": name}, True).message
    assert "name" in refused({**BLUE, "name": name}).message


@pytest.mark.parametrize("name", ["abc", "a" * 32, "a-b-c", "A1-b2"])
def test_names_in_the_grammar(name: str) -> None:
    assert endpoint_spec.read({"name": name}).name == name


@pytest.mark.parametrize(
    ("traffic", "total"), [({"a": 90}, 90), ({"a": 60, "b": 60}, 120), ({"a": 1}, 1)]
)
def test_traffic_that_does_not_add_up_is_refused(traffic: Any, total: int) -> None:
    error = refused({"name": "digits", "traffic": traffic}, True)
    assert error.message == f"`traffic` adds up to {total}" and error.at == ("traffic",)


def test_traffic_of_0_or_100_is_read() -> None:
    document = {"name": "digits", "traffic": {"a": "90", "b": 10}, "mirror_traffic": {"b": 50}}
    spec = endpoint_spec.read(document)
    assert spec.traffic == {"a": 90, "b": 10} and spec.mirror_traffic == {"b": 50}
    assert endpoint_spec.read({"name": "digits", "traffic": {"a": 0}}).traffic == {"a": 0}


@pytest.mark.parametrize("share", [-1, 101, 1.5, True, "x", None, [1]])
def test_a_share_is_a_whole_number_of_percent(share: Any) -> None:
    if share is None:
        return
    error = refused({"name": "digits", "traffic": {"blue": share}}, True)
    assert error.at == ("traffic", "blue")


def test_more_than_half_or_two_mirrors_are_refused() -> None:
    for mirror in ({"a": 51}, {"a": 10, "b": 10}):
        error = refused({"name": "digits", "mirror_traffic": mirror}, True)
        assert error.at == ("mirror_traffic",)


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"compute": "k8s"}, ("compute",)),
        ({"scoring_uri": "http://x"}, ("scoring_uri",)),
        ({"public_network_access": "disabled"}, ("public_network_access",)),
        ({"identity": {"type": "user_assigned"}}, ("identity",)),
        ({"auth_mode": "none"}, ("auth_mode",)),
        ({"traffics": {}}, ("traffics",)),
        ({"traffic": [1]}, ("traffic",)),
    ],
)
def test_what_an_endpoint_refuses(change: dict[str, Any], at: tuple[str, ...]) -> None:
    assert refused({"name": "digits", **change}, True).at == at


def test_a_deployment_has_the_defaults_of_azure() -> None:
    spec = deployment_spec.read(BLUE)
    assert spec.request_settings == RequestSettings()
    assert spec.request_settings.request_timeout_ms == 5000
    assert spec.liveness_probe == spec.readiness_probe == Probe()
    assert (spec.liveness_probe.period, spec.liveness_probe.failure_threshold) == (10, 30)
    assert (spec.instance_count, spec.scale_settings.type, spec.data_collector) == (
        1, "default", None,
    )  # fmt: skip
    assert (spec.own_settings.max_queue, spec.own_settings.max_body_bytes) == (100, 100 << 20)


def test_every_key_of_a_deployment_is_read() -> None:
    spec = deployment_spec.read(
        {
            **BLUE,
            "model": {"path": "snapshot:x", "type": "MLflow_Model"},
            "code_configuration": {"code": "snapshot:y", "scoring_script": "./sub/score.py"},
            "environment_variables": {"A": 1},
            "instance_count": 2.0,
            "request_settings": {"request_timeout_ms": 180_000, "max_queue_wait_ms": 0},
            "readiness_probe": {"period": 1},
            "scale_settings": {
                "type": "TargetUtilization", "min_instances": 0, "max_instances": 3,
                "polling_interval": "PT10S", "target_utilization_percentage": 50,
            },
            "data_collector": {
                "sampling_rate": 0.5,
                "rolling_rate": "Day",
                "collections": {
                    "model_inputs": {"enabled": "True", "data": "azureml:inputs:2"},
                    "model_outputs": {"enabled": False},
                    "request": {"sampling_rate": 0.25, "data": {"name": "raw", "version": 3}},
                    "embeddings": {},
                },
            },
            "torchyard": {"batching": {"max_size": 4}, "cluster": "azureml:gpu", "max_queue": 5},
        }
    )  # fmt: skip
    assert spec.model is not None and spec.model.type == "mlflow_model"
    assert spec.code is not None and spec.code.scoring_script == "sub/score.py"
    assert spec.environment_variables == {"A": "1"} and spec.instance_count == 2
    assert spec.request_settings == RequestSettings(request_timeout_ms=180_000, max_queue_wait_ms=0)
    assert spec.readiness_probe.period == 1
    assert spec.scale_settings.is_automatic and spec.scale_settings.min_instances == 0
    assert spec.scale_settings.polling_interval == 10
    assert spec.data_collector is not None
    assert spec.data_collector.rolling_rate == "day"
    assert spec.data_collector.collections == (
        Collection("model_inputs", 0.5, "inputs", "2"),
        Collection("request", 0.25, "raw", "3"),
        Collection("embeddings", 0.5),
    )
    assert spec.own_settings.batching == Batching(max_size=4)
    assert (spec.own_settings.cluster, spec.own_settings.max_queue) == ("gpu", 5)


def test_own_keys_may_be_tags() -> None:
    tags = {"torchyard.max_queue": "7", "torchyard.batching": '{"max_size": 2}', "team": "a"}
    spec = deployment_spec.read({**BLUE, "tags": tags})
    assert spec.own_settings.max_queue == 7 and spec.own_settings.batching == Batching(max_size=2)
    assert refused({**BLUE, "tags": {"torchyard.max_que": "7"}}).hint.endswith("max_queue`?")


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"instance_count": 0}, ("instance_count",)),
        ({"instance_count": "x"}, ("instance_count",)),
        ({"type": "kubernetes"}, ("type",)),
        ({"model": {"type": "custom_model"}}, ("model",)),
        ({"model": {"path": "x", "type": "triton_model"}}, ("model", "type")),
        ({"model": {"path": "x", "folder": ".."}}, ("model", "folder")),
        ({"code_configuration": {"code": "./src"}}, ("code_configuration",)),
        (
            {"code_configuration": {"code": "c", "scoring_script": "../score.py"}},
            ("code_configuration", "scoring_script"),
        ),
        ({"request_settings": {"request_timeout_ms": 180_001}},
         ("request_settings", "request_timeout_ms")),
        ({"request_settings": {"timeout": 1}}, ("request_settings", "timeout")),
        ({"liveness_probe": {"period": 0}}, ("liveness_probe", "period")),
        ({"scale_settings": {"min_instances": 3, "max_instances": 2}},
         ("scale_settings", "max_instances")),
        ({"data_collector": {"sampling_rate": 2}}, ("data_collector", "sampling_rate")),
        ({"data_collector": {"rolling_rate": "week"}}, ("data_collector", "rolling_rate")),
        ({"data_collector": {"collections": {"x/y": {}}}},
         ("data_collector", "collections", "x/y")),
        ({"data_collector": {"collections": {"x": {"data": "azureml:a@latest"}}}},
         ("data_collector", "collections", "x", "data")),
        ({"data_collector": {"collections": {"x": {"data": {"name": "a/b"}}}}},
         ("data_collector", "collections", "x", "data", "name")),
        ({"data_collector": {"collections": {"x": {"data": {"path": "azureml://x"}}}}},
         ("data_collector", "collections", "x", "data", "path")),
        ({"environment": {"image": "x", "inference_config": {"a": 1}}},
         ("environment", "inference_config", "a")),
        ({"environment": {"image": "x", "inference_config": [1]}},
         ("environment", "inference_config")),
        ({"environment": {"image": "x", "inference_config": ROUTES}},
         ("environment", "inference_config")),
        ({**CODE, "environment": {"conda_file": "c", "inference_config": {
            **ROUTES, "scoring_route": {"port": 8501, "path": "/v1/models/x:predict"}}}},
         ("environment", "inference_config", "scoring_route", "path")),
        ({**CODE, "environment": {"image": "x", "inference_config": {
            "readiness_route": {"port": 0, "path": "/"}}}},
         ("environment", "inference_config", "readiness_route", "port")),
        ({"environment": 1}, ("environment",)),
        ({"environment_variables": {"a b": "c"}}, ("environment_variables", "a b")),
        ({"egress_public_network_access": "disabled"}, ("egress_public_network_access",)),
        ({"model_mount_path": "/x"}, ("model_mount_path",)),
        ({"torchyard": {"batching": {"max_size": 1}}}, ("torchyard", "batching", "max_size")),
        ({"endpoint_name": None}, ()),
    ],
)  # fmt: skip
def test_what_a_deployment_refuses(change: dict[str, Any], at: tuple[str, ...]) -> None:
    assert refused({**BLUE, **change}).at == at


def test_what_has_no_effect_is_said() -> None:
    (notice,) = deployment_spec.read({**BLUE, "app_insights_enabled": True}).notices
    assert "app_insights_enabled" in notice


@pytest.mark.parametrize(
    ("requests", "variables", "said"),
    [
        (8, {}, "8 requests at once and has 1 process"),
        (8, {"WORKER_COUNT": "4"}, "8 requests at once and has 4 processes"),
        (4, {"WORKER_COUNT": "4"}, None),
        (4, {"WORKER_COUNT": "many"}, None),
        (1, {}, None),
    ],
)
def test_more_requests_at_once_than_processes_are_told(
    requests: int, variables: dict[str, str], said: str | None
) -> None:
    notices = deployment_spec.read(
        {
            **BLUE,
            "environment_variables": variables,
            "request_settings": {"max_concurrent_requests_per_instance": requests},
        }
    ).notices
    assert len(notices) == (said is not None)
    assert all(said and said in notice for notice in notices)
    assert all(f"WORKER_COUNT: {requests}" in notice for notice in notices)


@pytest.mark.parametrize(
    ("variables", "settings", "at_once"),
    [
        ({}, {}, 1),
        ({"WORKER_COUNT": "4"}, {}, 4),
        ({"WORKER_COUNT": "4"}, {"request_timeout_ms": 9}, 4),
        ({"WORKER_COUNT": "4"}, {"max_concurrent_requests_per_instance": 1}, 1),
        ({"WORKER_COUNT": "many"}, {}, 1),
        ({"WORKER_COUNT": "0"}, {}, 1),
        ({"WORKER_COUNT": "99999"}, {}, 10_000),
        ({"WORKER_COUNT": "9" * 5000}, {}, 1),
    ],
)
def test_an_instance_gets_as_many_requests_as_it_has_processes(
    variables: dict[str, str], settings: dict[str, int], at_once: int
) -> None:
    document = {**BLUE, "environment_variables": variables, "request_settings": settings}
    requests = deployment_spec.read(document).request_settings
    assert requests.max_concurrent_requests_per_instance == at_once
    assert requests.request_timeout_ms == settings.get("request_timeout_ms", 5000)


def test_an_image_that_would_start_its_own_server_is_refused_by_name() -> None:
    environment = {"image": "docker.io/tensorflow/serving:latest", "inference_config": ROUTES}
    error = refused({**BLUE, "environment": environment})
    assert error.code == "not_served"
    assert "image `docker.io/tensorflow/serving:latest` is not started" in error.message


@pytest.mark.parametrize(
    "change",
    [
        {**CODE, "environment": {"image": "x", "inference_config": ROUTES}},
        {"environment": {"conda_file": "c.yml", "inference_config": ROUTES}},
        {"environment": {"pip_requirements": "r", "inference_config": ROUTES}},
    ],
    ids=["image-with-script", "conda", "pip"],
)
def test_the_inference_servers_own_routes_are_satisfied(change: dict[str, Any]) -> None:
    (notice,) = deployment_spec.read({**BLUE, **change}).notices
    assert "ports of `environment.inference_config` have no effect" in notice


def test_an_empty_inference_config_says_nothing() -> None:
    environment = {"conda_file": "c.yml", "inference_config": {}}
    assert deployment_spec.read({**BLUE, "environment": environment}).notices == ()


def test_the_page_of_keys_is_current() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "endpoint-file.md"
    assert page.read_text() == reference.page()
