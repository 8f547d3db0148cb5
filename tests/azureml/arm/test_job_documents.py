"""Azure's job bodies as our documents, key by key, and the parts that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.azureml.arm.job_documents import Reader, duration_s
from torchyard.azureml.arm.job_resources import duration
from torchyard.azureml.common.errors import NotServed
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError

WS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/team"
READER = Reader("team", lambda code_id: f"<{code_id.rpartition('/codes/')[2]}>")


def read(**properties: Any) -> dict[str, Any]:
    document = READER.read("j", {"jobType": "Command", **properties})
    assert document.pop("name") == "j"
    return document


@pytest.mark.parametrize(
    ("key", "azure_value", "native"),
    [
        ("command", "python t.py ${{inputs.x}}", {"command": "python t.py ${{inputs.x}}"}),
        ("displayName", "shown", {"display_name": "shown"}),
        ("description", "", {}),
        ("experimentName", "e", {"experiment_name": "e"}),
        ("environmentVariables", {"A": "1"}, {"environment_variables": {"A": "1"}}),
        ("environmentVariables", {"AZUREML_COMPUTE_USE_COMMON_RUNTIME": "true"}, {}),
        ("tags", {"a": "b"}, {"tags": {"a": "b"}}),
        ("properties", {"a": "b"}, {"properties": {"a": "b"}}),
        ("parentJobName", "p", {"parent_job_name": "p"}),
        ("isArchived", False, {}),
        ("status", "Completed", {}),
        ("codeId", f"{WS}/codes/u/versions/1", {"code": "snapshot:<u/versions/1>"}),
        ("codeId", None, {}),
        ("computeId", f"{WS}/computes/gpu", {"compute": "azureml:gpu"}),
        ("computeId", f"{WS.lower()}/computes/gpu", {"compute": "azureml:gpu"}),
        ("computeId", "serverless", {"compute": "azureml:serverless"}),
        ("environmentId", f"{WS}/environments/e/versions/3", {"environment": "azureml:e:3"}),
        ("environmentId", f"azureml:{WS}/environments/e/labels/l", {"environment": "azureml:e@l"}),
        ("environmentId", "azureml:e@latest", {"environment": "azureml:e@latest"}),
        (
            "environmentId",
            "azureml://registries/azureml/environments/e/labels/latest",
            {"environment": "azureml://registries/azureml/environments/e/labels/latest"},
        ),
        (
            "limits",
            {"jobLimitsType": "Command", "timeout": "PT1H5M"},
            {"limits": {"timeout": 3900}},
        ),
        ("limits", {"jobLimitsType": "Command", "timeout": None}, {}),
        (
            "distribution",
            {"distributionType": "PyTorch", "processCountPerInstance": 2},
            {"distribution": {"type": "pytorch", "process_count_per_instance": 2}},
        ),
        (
            "distribution",
            {"distributionType": "Mpi", "processCountPerInstance": 4},
            {"distribution": {"type": "mpi", "process_count_per_instance": 4}},
        ),
        (
            "distribution",
            {"distributionType": "TensorFlow", "workerCount": 2, "parameterServerCount": 1},
            {
                "distribution": {
                    "type": "tensorflow",
                    "worker_count": 2,
                    "parameter_server_count": 1,
                }
            },
        ),
        (
            "resources",
            {"instanceCount": 2, "shmSize": "2g", "instanceType": "M", "properties": {}},
            {"resources": {"instance_count": 2, "shm_size": "2g", "instance_type": "M"}},
        ),
        ("resources", {"properties": {"local": {"local": True}}}, {"compute": "azureml:local"}),
        (
            "resources",
            {"dockerArgs": "--gpus all", "properties": {"AISuperComputer": {"x": 1}}},
            {
                "resources": {
                    "docker_args": "--gpus all",
                    "properties": {"AISuperComputer": {"x": 1}},
                }
            },
        ),
        ("resources", {"dockerArgsList": ["-v"]}, {"resources": {"docker_args": ["-v"]}}),
        (
            "inputs",
            {"lr": {"jobInputType": "literal", "value": "0.1"}, "off": None},
            {"inputs": {"lr": "0.1", "off": None}},
        ),
        (
            "inputs",
            {
                "d": {
                    "jobInputType": "uri_folder",
                    "uri": f"{WS}/data/cats/versions/2",
                    "mode": None,
                }
            },
            {"inputs": {"d": {"type": "uri_folder", "path": "azureml:cats:2"}}},
        ),
        (
            "inputs",
            {"d": {"jobInputType": "uri_file", "uri": f"{WS}/data/snapshot/versions/{'0' * 64}"}},
            {"inputs": {"d": {"type": "uri_file", "path": f"snapshot:{'0' * 64}"}}},
        ),
        (
            "inputs",
            {"m": {"jobInputType": "mlflow_model", "uri": f"{WS}/models/m/versions/2"}},
            {"inputs": {"m": {"type": "mlflow_model", "path": "azureml:m:2"}}},
        ),
        (
            "inputs",
            {"d": {"jobInputType": "uri_file", "uri": "https://h/f", "mode": "ReadOnlyMount"}},
            {"inputs": {"d": {"type": "uri_file", "path": "https://h/f", "mode": "ro_mount"}}},
        ),
        (
            "inputs",
            {"t": {"jobInputType": "mltable", "uri": "azureml:t:1", "mode": "EvalMount"}},
            {"inputs": {"t": {"type": "mltable", "path": "azureml:t:1", "mode": "eval_mount"}}},
        ),
        ("outputs", {}, {}),
        (
            "outputs",
            {
                "o": {
                    "jobOutputType": "uri_file",
                    "uri": "azureml://datastores/d/paths/p",
                    "mode": "ReadWriteMount",
                    "assetName": "a",
                    "assetVersion": "7",
                    "description": "said",
                },
                "plain": {"jobOutputType": "uri_folder"},
            },
            {
                "outputs": {
                    "o": {
                        "type": "uri_file",
                        "path": "azureml://datastores/d/paths/p",
                        "mode": "rw_mount",
                        "name": "a",
                        "version": "7",
                    },
                    "plain": {"type": "uri_folder"},
                }
            },
        ),
        ("identity", {"identityType": "AMLToken"}, {"identity": {"type": "aml_token"}}),
        ("identity", {"identityType": "UserIdentity"}, {"identity": {"type": "user_identity"}}),
        (
            "identity",
            {"identityType": "Managed", "clientId": "c"},
            {"identity": {"type": "managed", "client_id": "c"}},
        ),
        (
            "services",
            {"Tracking": {"jobServiceType": "Tracking"}, "Studio": {"jobServiceType": "Studio"}},
            {},
        ),
        (
            "services",
            {
                "board": {
                    "jobServiceType": "TensorBoard",
                    "nodes": {"nodesValueType": "All"},
                    "properties": {"logDir": "tb"},
                }
            },
            {
                "services": {
                    "board": {
                        "type": "tensor_board",
                        "nodes": "all",
                        "properties": {"logDir": "tb"},
                    }
                }
            },
        ),
        (
            "queueSettings",
            {"jobTier": "Spot", "priority": 3},
            {"queue_settings": {"job_tier": "spot", "priority": "high"}},
        ),
        ("queueSettings", {"jobTier": "Null"}, {}),
        ("autologgerSettings", {"mlflowAutologger": "Disabled"}, {}),
        ("notificationSetting", {"emailOn": [], "emails": None}, {}),
        (
            "notificationSetting",
            {"emailOn": ["JobFailed"], "emails": ["a@b.org"]},
            {"notification_settings": {"email_on": ["JobFailed"], "emails": ["a@b.org"]}},
        ),
        ("componentId", "", {}),
    ],
)
def test_a_key_is_translated(key: str, azure_value: Any, native: dict[str, Any]) -> None:
    assert read(**{key: azure_value}) == native


@pytest.mark.parametrize(
    ("properties", "kind", "says"),
    [
        ({"jobType": "AutoML"}, NotServed, "automated machine learning"),
        ({"jobType": "Spark"}, NotServed, "Spark"),
        ({"jobType": "Labeling"}, NotServed, "labeling"),
        ({"jobType": None}, NotServed, "jobs of type ``"),
        ({"componentId": "c"}, InvalidInput, "`componentId` of a job is not served"),
        ({"somethingNew": {"a": 1}}, InvalidInput, "`somethingNew`"),
        ({"inputs": []}, InvalidInput, "`inputs` of the job is not a JSON object"),
        ({"inputs": {"a": "x"}}, InvalidInput, "`inputs.a`"),
        ({"codeId": 3}, InvalidInput, "`codeId` of the job is not a string"),
        ({"limits": {"timeout": "5 minutes"}}, InvalidInput, "`5 minutes` is not a duration"),
        ({"limits": {"trialTimeout": "PT1S"}}, InvalidInput, "`limits.trialTimeout`"),
        ({"queueSettings": {"priority": 7}}, InvalidInput, "`priority` is `7`"),
        ({"identity": {"identityType": "Odd"}}, InvalidInput, "`Odd` is not a value"),
        ({"autologgerSettings": {"mlflowAutologger": "Enabled"}}, InvalidInput, "autologger"),
        ({"notificationSetting": {"sms": ["1"]}}, InvalidInput, "notificationSetting"),
        (
            {"inputs": {"a": {"jobInputType": "uri_file", "uri": "x", "mode": "Sideways"}}},
            InvalidInput,
            "`Sideways`",
        ),
        (
            {"outputs": {"a": {"autoDeleteSetting": {"value": "30d"}}}},
            InvalidInput,
            "`outputs.a.autoDeleteSetting`",
        ),
        (
            {"computeId": WS.replace("team", "other") + "/computes/c"},
            NotFound,
            "is in workspace `other`, and this is workspace `team`",
        ),
    ],
)
def test_unsupported_values_are_refused_by_name(
    properties: dict[str, Any], kind: type[TorchyardError], says: str
) -> None:
    with pytest.raises(kind) as refused:
        read(**properties)
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("PT30S", 30, "PT30S"),
        ("PT90M", 5400, "PT1H30M"),
        ("P1DT2H", 93600, "PT26H"),
        ("PT1H0M5S", 3605, "PT1H5S"),
        ("pt5m", 300, "PT5M"),
    ],
)
def test_durations_go_both_ways(text: str, seconds: int, canonical: str) -> None:
    assert duration_s(text) == seconds
    assert duration(seconds) == canonical
    assert duration_s(canonical) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1Y", "60", "PT-5S", "PT5"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        duration_s(text)
