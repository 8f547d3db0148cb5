"""Azure's pipelines as our documents and back, with what azure-ai-ml 1.35 sends."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchyard.azureml.arm import pipeline_documents, pipeline_resources
from torchyard.azureml.arm.components import document_of, spec_of
from torchyard.azureml.arm.job_documents import Reader
from torchyard.azureml.arm.pipeline_jobs import PIPELINES
from torchyard.azureml.common.calls import Call
from torchyard.azureml.common.errors import NotServed
from torchyard.base.errors import Conflict, InvalidInput, InvalidSpec, NotFound, TorchyardError
from torchyard.components.types import Component
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import Services
from torchyard.workspaces.types import Identity, TokenKind, Workspace

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
WORKSPACE = Workspace("team", "s", "g", "local", NOW)
CALL = Call(WORKSPACE, Identity("dan", TokenKind.PERSON), "https://host", "GET", "/", {})
READER = Reader("team", lambda code: "a" * 64)
COMPONENT = CALL.id("components", "azureml_anonymous", "versions", "u-1")
STEP: dict[str, Any] = {
    "name": "train",
    "type": "command",
    "display_name": "Train",
    "tags": {"n": "v"},
    "componentId": COMPONENT,
    "computeId": CALL.id("computes", "gpu"),
    "environment_variables": {"B": "2"},
    "resources": {
        "instance_count": 2,
        "shm_size": "3g",
        "docker_args": "--ipc=host",
        "properties": {"x": {"y": 1}},
    },
    "distribution": {"process_count_per_instance": 4, "distribution_type": "Mpi"},
    "limits": {"timeout": "PT1M", "job_limits_type": "Command"},
    "queue_settings": {"job_tier": "Spot", "priority": 3},
    "identity": {"identity_type": "UserIdentity"},
    "services": {
        "v": {"job_service_type": "VSCode", "nodes": {"nodes_value_type": "All"}},
        "t": {"job_service_type": "TensorBoard", "properties": {"logDir": "x"}},
    },
    "inputs": {
        "rate": {"value": "${{parent.inputs.rate}}", "job_input_type": "literal"},
        "whole": {
            "value": "${{parent.jobs.prep.outputs.o}}",
            "job_input_type": "literal",
            "mode": "Download",
        },
        "n": {"value": "5", "job_input_type": "literal"},
        "data": {
            "uri": CALL.id("data", "dat", "versions", "1"),
            "mode": "Download",
            "job_input_type": "uri_folder",
        },
    },
    "outputs": {
        "model": {"value": "${{parent.outputs.model}}", "type": "literal"},
        "best": {"value": "${{parent.outputs.best}}", "type": "literal", "mode": "Upload"},
        "log": {
            "job_output_type": "uri_file",
            "mode": "ReadWriteMount",
            "uri": "azureml://datastores/d/paths/${{name}}/log",
            "name": "log",
            "version": "2",
        },
    },
}
OURS: dict[str, Any] = {
    "type": "command",
    "display_name": "Train",
    "tags": {"n": "v"},
    "component": "azureml:azureml_anonymous:u-1",
    "compute": "azureml:gpu",
    "environment_variables": {"B": "2"},
    "resources": {
        "instance_count": 2,
        "shm_size": "3g",
        "docker_args": "--ipc=host",
        "properties": {"x": {"y": 1}},
    },
    "distribution": {"type": "mpi", "process_count_per_instance": 4},
    "limits": {"timeout": 60},
    "queue_settings": {"job_tier": "spot", "priority": "high"},
    "identity": {"type": "user_identity"},
    "services": {
        "v": {"type": "vs_code", "nodes": "all"},
        "t": {"type": "tensor_board", "properties": {"logDir": "x"}},
    },
    "inputs": {
        "rate": "${{parent.inputs.rate}}",
        "whole": {"path": "${{parent.jobs.prep.outputs.o}}", "mode": "download"},
        "n": "5",
        "data": {"type": "uri_folder", "path": "azureml:dat:1", "mode": "download"},
    },
    "outputs": {
        "model": "${{parent.outputs.model}}",
        "best": {"path": "${{parent.outputs.best}}", "mode": "upload"},
        "log": {
            "type": "uri_file",
            "mode": "rw_mount",
            "path": "azureml://datastores/d/paths/${{name}}/log",
            "name": "log",
            "version": "2",
        },
    },
}


def properties(**changes: Any) -> dict[str, Any]:
    return {
        "jobType": "Pipeline",
        "displayName": "P",
        "experimentName": "e",
        "tags": {"a": "b"},
        "properties": {},
        "isArchived": False,
        "inputs": {
            "data": {"uri": CALL.id("data", "dat", "versions", "1"), "jobInputType": "uri_folder"},
            "rate": {"value": "0.5", "jobInputType": "literal"},
        },
        "outputs": {
            "model": {"mode": "Upload", "description": "o", "jobOutputType": "uri_folder"},
            "best": {
                "jobOutputType": "mlflow_model",
                "uri": "azureml://datastores/d/paths/p",
                "assetName": "best",
                "assetVersion": "4",
            },
        },
        "settings": {
            "default_compute": CALL.id("computes", "cpu"),
            "default_datastore": CALL.id("datastores", "d"),
            "continue_on_step_failure": True,
            "force_rerun": True,
            "_source": "DSL",
        },
        "identity": {"identityType": "AMLToken"},
        "jobs": {"train": {**STEP, "_source": "YAML.COMPONENT", "comment": "hi"}},
        **changes,
    }


def read(**changes: Any) -> dict[str, Any]:
    return PIPELINES.read(READER, "p", properties(**changes))


def with_step(**changes: Any) -> dict[str, Any]:
    return {"jobs": {"train": {**STEP, **changes}}}


def job_of(document: dict[str, Any]) -> Job:
    return Job(
        id=1,
        workspace="team",
        name="p",
        type="pipeline",
        experiment_id=1,
        experiment_name="e",
        status=Status.QUEUED,
        owner="dan",
        display_name="P",
        document=document,
        spec_hash="h",
        compute="",
        node_count=0,
        processes_per_node=0,
        created_at=NOW,
    )


def shown(document: dict[str, Any]) -> dict[str, Any]:
    return PIPELINES.properties(CALL, job_of(document), "")


def require_same(stored: dict[str, Any], request: dict[str, Any]) -> None:
    PIPELINES.require_same(cast(Services, SimpleNamespace()), job_of(stored), request)


def test_a_pipeline_of_the_sdk_is_a_pipeline_file() -> None:
    assert read() == {
        "type": "pipeline",
        "name": "p",
        "display_name": "P",
        "experiment_name": "e",
        "tags": {"a": "b"},
        "inputs": {"data": {"type": "uri_folder", "path": "azureml:dat:1"}, "rate": "0.5"},
        "outputs": {
            "model": {"type": "uri_folder", "mode": "upload"},
            "best": {
                "type": "mlflow_model",
                "path": "azureml://datastores/d/paths/p",
                "name": "best",
                "version": "4",
            },
        },
        "settings": {
            "default_compute": "azureml:cpu",
            "default_datastore": "azureml:d",
            "continue_on_step_failure": True,
            "force_rerun": True,
        },
        "identity": {"type": "aml_token"},
        "jobs": {"train": OURS},
    }


def test_a_step_is_shown_as_clients_write_it() -> None:
    step = shown(read())["jobs"]["train"]
    assert step["outputs"].pop("log") == {
        **STEP["outputs"]["log"],
        "uri": "azureml://subscriptions/s/resourcegroups/g/workspaces/team"
        "/datastores/d/paths/${{name}}/log",
    }
    outputs = {name: each for name, each in STEP["outputs"].items() if name != "log"}
    assert step == {**STEP, "outputs": outputs}


def test_what_a_client_reads_and_puts_again_is_the_same_pipeline() -> None:
    stored = read()
    body = {**shown(stored), "tags": {"new": "tag"}, "displayName": "other"}
    require_same(stored, PIPELINES.read(READER, "p", body))
    assert body["jobType"] == "Pipeline" and "Studio" in body["services"]


def test_a_secret_of_a_step_is_hidden_and_still_the_same() -> None:
    stored = read(**with_step(environment_variables={"DB_PASSWORD": "hunter2hunter2"}))
    body = shown(stored)
    assert "hunter2" not in str(body)
    require_same(stored, PIPELINES.read(READER, "p", body))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (with_step(limits={"timeout": "PT2M"}), "jobs"),
        ({"inputs": {"rate": {"value": "0.6", "jobInputType": "literal"}}}, "inputs"),
        ({"settings": {"force_rerun": False}}, "settings"),
        ({"computeId": CALL.id("computes", "gpu")}, "compute"),
    ],
)
def test_another_content_is_a_conflict(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(Conflict) as refused:
        require_same(read(), read(**changes))
    assert f"`{key}`" in refused.value.message


def test_defaults_may_be_left_out_of_settings() -> None:
    explicit = {"continue_on_step_failure": True, "force_rerun": False}
    require_same(read(settings=explicit), read(settings={"_source": "DSL"}))


def test_a_command_job_is_not_the_pipeline() -> None:
    with pytest.raises(Conflict):
        require_same(read(), {"type": "command", "name": "p", "command": "true"})


def test_bindings_stay_as_they_are() -> None:
    step = read(
        **with_step(computeId="${{parent.inputs.c}}", limits={"timeout": "${{parent.inputs.t}}"})
    )["jobs"]["train"]
    assert step["compute"] == "${{parent.inputs.c}}"
    assert step["limits"] == {"timeout": "${{parent.inputs.t}}"}


def test_a_nested_pipeline_is_a_step_with_a_component() -> None:
    step = {"name": "one", "type": "pipeline", "componentId": COMPONENT, "_source": "DSL"}
    assert read(jobs={"one": step})["jobs"] == {
        "one": {"type": "pipeline", "component": "azureml:azureml_anonymous:u-1"}
    }


def test_a_pipeline_may_be_a_component() -> None:
    document = read(jobs={}, componentId=f"azureml:{COMPONENT}")
    assert document["component"] == "azureml:azureml_anonymous:u-1" and "jobs" not in document
    assert shown(document)["componentId"] == COMPONENT


@pytest.mark.parametrize("kind", ["spark", "automl", "parallel", "sweep", "do_while", "import"])
def test_of_a_step_that_is_not_served_the_type_is_kept(kind: str) -> None:
    assert read(**with_step(type=kind, entry="x"))["jobs"] == {"train": {"type": kind}}


def test_a_step_without_a_component_is_shown_with_one_that_its_content_decides() -> None:
    def step_id(command: str) -> str:
        step = {"type": "command", "command": command, "environment": "azureml:python:1"}
        document = {"type": "pipeline", "jobs": {"a": step}}
        return str(shown(document)["jobs"]["a"]["componentId"])

    assert step_id("true") == step_id("true") != step_id("false")
    assert "/components/azureml_anonymous/versions/" in step_id("true")


@pytest.mark.parametrize(
    ("changes", "error", "at"),
    [
        (with_step(retry="x"), InvalidSpec, ("jobs", "train", "retry")),
        (with_step(name="other"), InvalidSpec, ("jobs", "train", "name")),
        (with_step(limits={"max_nodes": 1}), InvalidSpec, ("jobs", "train", "limits", "max_nodes")),
        (
            with_step(limits={"timeout": "soon"}),
            InvalidSpec,
            ("jobs", "train", "limits", "timeout"),
        ),
        (
            with_step(queue_settings={"priority": 9}),
            InvalidSpec,
            ("jobs", "train", "queue_settings", "priority"),
        ),
        (
            with_step(inputs={"myData": {"uri": "x", "job_input_type": "uri_file", "mode": "Sky"}}),
            InvalidSpec,
            ("jobs", "train", "inputs", "myData", "mode"),
        ),
        (with_step(inputs=[1]), InvalidInput, ("jobs", "train", "inputs")),
        ({"jobs": {"train": 3}}, InvalidInput, ("jobs", "train")),
        ({"jobs": [1]}, InvalidInput, ("jobs",)),
        ({"settings": {"default_datestore": "d"}}, InvalidSpec, ("settings", "default_datestore")),
        ({"sourceJobId": "x"}, InvalidSpec, ("sourceJobId",)),
        ({"services": {"j": {"jobServiceType": "JupyterLab"}}}, InvalidSpec, ("services",)),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_place(
    changes: dict[str, Any], error: type[TorchyardError], at: tuple[str, ...]
) -> None:
    with pytest.raises(error) as refused:
        read(**changes)
    assert refused.value.at == ("properties", *at)


def test_a_misspelt_setting_is_told_the_nearest() -> None:
    with pytest.raises(InvalidSpec) as refused:
        read(settings={"default_datestore": "d"})
    assert "`default_datastore`" in refused.value.hint


def test_a_component_of_another_workspace_is_refused() -> None:
    with pytest.raises(NotFound):
        read(**with_step(componentId=COMPONENT.replace("/team/", "/others/")))


def test_an_import_of_data_is_refused_by_its_name() -> None:
    with pytest.raises(NotServed) as refused:
        read(properties={"azureml.materializationAssetName": "x"})
    assert "imports of data" in refused.value.message


SPEC: dict[str, Any] = {
    "name": "sub",
    "display_name": "sub",
    "type": "pipeline",
    "inputs": {"data": {"type": "uri_folder"}, "rate": {"type": "number", "default": "0.5"}},
    "outputs": {"model": {"type": "uri_folder"}},
    "jobs": {"train": {**STEP, "_source": "YAML.COMPONENT"}},
    "_source": "DSL",
    "sourceJobId": None,
}


@pytest.mark.parametrize("type", ["pipeline", "pipeline_component"])
def test_a_pipeline_component_is_read_and_shown_again(type: str) -> None:
    document = document_of(READER, {**SPEC, "type": type})
    assert document == {
        "type": "pipeline",
        "display_name": "sub",
        "inputs": SPEC["inputs"],
        "outputs": SPEC["outputs"],
        "jobs": {"train": OURS},
    }
    spec = spec_of(CALL, _component(document))
    assert document_of(READER, spec)["jobs"]["train"]["component"] == OURS["component"]
    assert spec["jobs"]["train"]["componentId"] == COMPONENT
    assert (spec["type"], spec["inputs"]) == ("pipeline", SPEC["inputs"])


def test_a_command_component_of_the_sdk_keeps_all_its_parts() -> None:
    kept = {
        "type": "command",
        "display_name": "Train C",
        "is_deterministic": False,
        "command": "python t.py ${{inputs.n}}",
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        "resources": {"instance_count": 2, "shm_size": "2g", "docker_args": "--a"},
        "limits": {"timeout": 100},
        "inputs": {
            "n": {"type": "integer", "default": "3", "min": "1", "max": "9"},
            "kind": {"type": "string", "enum": ["a", "b"], "optional": True},
        },
        "outputs": {"model": {"type": "uri_folder", "mode": "rw_mount"}},
    }
    spec = {
        **kept,
        "name": "train",
        "version": "3",
        # Sent with a component that the client has registered before.
        "id": COMPONENT,
        "environment": f"azureml:{CALL.id('environments', 'python', 'versions', '1')}",
        "code": f"azureml:{CALL.id('codes', 'u', 'versions', '1')}",
        "_source": "YAML.COMPONENT",
    }
    code = f"snapshot:{'a' * 64}"
    assert document_of(READER, spec) == {**kept, "environment": "azureml:python:1", "code": code}


def _component(definition: dict[str, Any]) -> Component:
    return Component(
        workspace="team",
        name="sub",
        version="1",
        type="pipeline",
        definition=definition,
        hash="h",
        created_at=NOW,
        owner="dan",
    )


def test_nodes_are_refused_together() -> None:
    steps = {"a": {"retry": 1}, "b": {"retry": 1}}
    with pytest.raises(InvalidSpec) as refused:
        pipeline_documents.nodes(READER, steps)
    assert [error.at[-2] for error in (refused.value, *refused.value.others)] == ["a", "b"]


def test_serverless_compute_has_no_resource_path() -> None:
    ids = pipeline_resources.ResourceIds(CALL)
    assert ids.name("computes", "azureml:serverless") == "serverless"
