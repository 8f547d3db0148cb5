"""Pipelines in the run history, as Azure's clients read them; without a scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.jobs import actions
from torchyard.pipelines.running import rounds
from workspaces.served import served

HISTORY = f"/history/v1.0{WORKSPACE}"
AGENT = {"user-agent": "azure-ai-ml/1.35.2"}
OLD_AGENT = {"user-agent": "azure-ai-ml/1.20.0"}


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        azure = Azure(site)
        _put_component(azure, "train")
        _put_component(azure, "azureml_anonymous")
        yield azure


def _put_component(azure: Azure, name: str) -> None:
    spec = {
        "type": "command",
        "name": name,
        "version": "1",
        "command": f"touch ${{{{outputs.model}}}}/{name}",
        "environment": "azureml:python@latest",
        "outputs": {"model": {"type": "mlflow_model"}},
    }
    azure.put(f"components/{name}/versions/1", {"componentSpec": spec})


def _body() -> dict[str, Any]:
    model = {"job_output_type": "mlflow_model"}
    steps = {
        step: {
            "name": step,
            "type": "command",
            "componentId": f"{WORKSPACE}/components/{component}/versions/1",
            "outputs": {"model": model},
        }
        for step, component in (("first", "train"), ("second", "azureml_anonymous"))
    }
    steps["first"]["outputs"] = {"model": {"value": "${{parent.outputs.best}}", "type": "literal"}}
    return {
        "jobType": "Pipeline",
        "experimentName": "e",
        "settings": {"default_compute": f"{WORKSPACE}/computes/local"},
        "outputs": {"best": {"jobOutputType": "mlflow_model"}},
        "jobs": steps,
    }


def _round(azure: Azure, name: str) -> None:
    services = azure.site.parts.services
    rounds.run(services, actions.get(services, "default", name).id)


def _canceled(azure: Azure, name: str) -> None:
    """A pipeline whose steps were started and have ended."""
    azure.put(f"jobs/{name}", _body())
    _round(azure, name)
    azure.answer("POST", f"jobs/{name}/cancel")
    _round(azure, name)
    _round(azure, name)


def test_the_steps_of_a_pipeline_say_which_component_they_are(azure: Azure) -> None:
    azure.put("jobs/steps", _body())
    _round(azure, "steps")
    children = azure.site.ask("dan", "GET", f"{HISTORY}/runs/steps/children").json()["value"]
    modules = {run["runId"]: run["properties"]["azureml.moduleName"] for run in children}
    assert modules == {"steps_first": "train", "steps_second": "second"}
    assert {run["parentRunId"] for run in children} == {"steps"}


@pytest.mark.parametrize(("agent", "type"), [(AGENT, "uri_folder"), (OLD_AGENT, "MLFlowModel")])
def test_the_outputs_of_a_pipeline_are_found_by_its_name(
    azure: Azure, agent: dict[str, str], type: str
) -> None:
    name = f"made-{type.replace('_', '-')}"
    _canceled(azure, name)
    data = azure.site.client.post(
        f"{HISTORY}/rundata",
        json={"runId": name},
        headers={"Authorization": f"Bearer {azure.site.tokens['dan']}", **agent},
    )
    asset = f"azureml://jobs/{name}/outputs/best"
    outputs = data.json()["runMetadata"]["outputs"]
    assert outputs == {"best": {"assetId": asset, "type": type}}
    path = f"/data/v1.0{WORKSPACE}/dataversion/batchGetResolvedUris"
    found = azure.site.ask("dan", "POST", path, {"values": [asset]}).json()
    assert found["values"][asset]["uri"].endswith(f"/azureml/{name}_first/model/")


def test_a_pipeline_that_was_read_makes_another(azure: Azure) -> None:
    _canceled(azure, "origin")
    read = azure.ask("GET", "jobs/origin")["properties"]
    copied = azure.put("jobs/copied", read)["properties"]
    assert (copied["status"], copied["jobs"]) == ("NotStarted", read["jobs"])
