"""Sweeps as Azure ML's clients create, read, change and cancel them; without a scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from workspaces.served import served

_DESCRIBED = ("displayName", "description", "experimentName", "tags", "computeId", "inputs")
_SEARCHED = ("searchSpace", "samplingAlgorithm", "objective", "earlyTermination", "limits")
HISTORY = f"/history/v1.0{WORKSPACE}"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        yield Azure(site)


def body(**changes: Any) -> dict[str, Any]:
    return {
        "jobType": "Sweep",
        "displayName": "shown",
        "description": "said",
        "experimentName": "e",
        "isArchived": False,
        "tags": {"team": "vision"},
        "properties": {"git": "main"},
        "computeId": f"{WORKSPACE}/computes/local",
        "searchSpace": {"rate": ["uniform", [0.1, 0.2]], "kind": ["choice", [["a", "b c"]]]},
        "samplingAlgorithm": {"samplingAlgorithmType": "Random", "seed": 3},
        "objective": {"goal": "Minimize", "primaryMetric": "loss"},
        "earlyTermination": {
            "policyType": "Bandit",
            "slackFactor": 0.1,
            "evaluationInterval": 2,
            "delayEvaluation": 1,
        },
        "limits": {
            "jobLimitsType": "Sweep",
            "maxTotalTrials": 6,
            "maxConcurrentTrials": 2,
            "timeout": "PT2H",
            "trialTimeout": "PT10M",
        },
        "inputs": {"lr": {"jobInputType": "literal", "value": "0.1"}},
        "outputs": {},
        "trial": {
            "command": "python t.py ${{inputs.lr}} ${{search_space.rate}} ${{search_space.kind}}",
            "environmentId": "azureml:python@latest",
            "environmentVariables": {"A": "1", "API_KEY": "hush-hush-hush"},
            "resources": {"instanceCount": 1, "shmSize": "2g", "properties": {}},
        },
        **changes,
    }


def test_a_sweep_is_returned_as_it_was_put(azure: Azure) -> None:
    created = azure.put("jobs/given-sweep", body())
    document, sent = created["properties"], body()
    for key in (*_DESCRIBED, *_SEARCHED):
        assert document[key] == sent[key], key
    assert (document["jobType"], document["status"]) == ("Sweep", "NotStarted")
    assert document["properties"]["git"] == "main"
    trial = document["trial"]
    assert trial["command"] == sent["trial"]["command"]
    assert trial["environmentId"].startswith(f"{WORKSPACE}/environments/python/versions/")
    assert trial["environmentVariables"] == {"A": "1", "API_KEY": "*****"}
    assert trial["resources"] == {"instanceCount": 1, "shmSize": "2g", "properties": {}}
    assert azure.ask("GET", "jobs/given-sweep")["properties"] == document


def test_a_sweep_that_is_read_and_put_again_is_the_same_with_other_tags(azure: Azure) -> None:
    read = azure.put("jobs/again-sweep", body())["properties"]
    changed = azure.put("jobs/again-sweep", {**read, "tags": {"new": "tag"}})["properties"]
    assert changed == {**read, "tags": {"new": "tag"}}
    other = {**read, "searchSpace": {"rate": ["uniform", [0, 1]], "kind": ["randint", [2]]}}
    refused = azure.refused(409, "PUT", "jobs/again-sweep", {"properties": other})
    assert "`search_space`" in refused["message"]


_BANDIT = body()["earlyTermination"]


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("sampling_algorithm", {"samplingAlgorithm": {"samplingAlgorithmType": "Bayesian"}}),
        ("sampling_algorithm", {"samplingAlgorithm": {"samplingAlgorithmType": "Random"}}),
        ("early_termination", {"earlyTermination": None}),
        ("early_termination", {"earlyTermination": {**_BANDIT, "slackFactor": 0.2}}),
        ("objective", {"objective": {"goal": "Maximize", "primaryMetric": "loss"}}),
        ("limits", {"limits": {**body()["limits"], "trialTimeout": "PT11M"}}),
        ("inputs", {"inputs": {"lr": {"jobInputType": "literal", "value": "0.2"}}}),
        ("environment", {"trial": {"environmentId": "azureml:other@latest"}}),
        ("environment_variables", {"trial": {"environmentVariables": {"A": "2"}}}),
        ("command", {"trial": {"command": body()["trial"]["command"] + " --more"}}),
        ("instance_count", {"trial": {"resources": {"instanceCount": 2}}}),
        ("experiment_name", {"experimentName": "other"}),
    ],
)
def test_a_sweep_of_the_same_name_with_another_body_is_refused(
    azure: Azure, key: str, changes: dict[str, Any]
) -> None:
    azure.put("environments/other/versions/1", {"image": "ubuntu:22.04"})
    created = azure.put("jobs/same-sweep", body())["properties"]
    assert azure.put("jobs/same-sweep", body())["properties"] == created
    for base in (body(), created):
        trial = {**base["trial"], **changes.get("trial", {})}
        other = {**base, **changes, "trial": trial}
        refused = azure.refused(409, "PUT", "jobs/same-sweep", {"properties": other})
        assert f"`{key}`" in refused["message"], refused
    assert azure.ask("GET", "jobs/same-sweep")["properties"] == created


def test_own_settings_that_a_client_does_not_send_back_are_no_difference(azure: Azure) -> None:
    asha = '{"type": "asha", "max_intervals": 9}'
    settings = {"torchyard.early_termination": asha, "torchyard.sampler": "random"}
    sent = body(earlyTermination=None, properties=settings)
    created = azure.put("jobs/own-sweep", sent)["properties"]
    assert azure.put("jobs/own-sweep", {**sent, "properties": {}})["name"] == "own-sweep"
    changed = {**settings, "torchyard.early_termination": asha.replace("9", "27")}
    refused = azure.refused(
        409, "PUT", "jobs/own-sweep", {"properties": {**created, "properties": changed}}
    )
    assert "`early_termination`" in refused["message"]


def test_lists_have_sweeps_by_their_type(azure: Azure) -> None:
    azure.put("jobs/listed-sweep", body(tags={"mine": "yes"}))
    assert azure.names("jobs", tag="mine=yes") == ["listed-sweep"]
    assert azure.names("jobs", tag="mine=yes", jobType="Sweep") == ["listed-sweep"]
    assert azure.names("jobs", tag="mine=yes", jobType="Command") == []


def test_a_sweep_is_canceled(azure: Azure) -> None:
    azure.put("jobs/canceled-sweep", body())
    azure.answer("POST", "jobs/canceled-sweep/cancel")
    status = azure.ask("GET", "jobs/canceled-sweep")["properties"]["status"]
    assert status in ("CancelRequested", "Canceled")


def test_the_run_history_has_what_hyperdrive_reads(azure: Azure) -> None:
    azure.put("jobs/history-sweep", body())
    answer = azure.site.ask("dan", "GET", f"{HISTORY}/runs/history-sweep")
    run = answer.json()
    assert (run["runType"], run["runTypeV2"]["orchestrator"]) == ("hyperdrive", "HyperDrive")
    tags = {key.removeprefix("_aml_system_"): text for key, text in run["tags"].items()}
    assert tags["max_total_jobs"] == "6" and tags["max_concurrent_jobs"] == "2"
    assert tags["max_duration_minutes"] == "120"
    assert tags["primary_metric_config"] == '{"name": "loss", "goal": "minimize"}'
    assert '"slack_factor": 0.1' in tags["policy_config"]
    assert '"rate": ["uniform", [0.1, 0.2]]' in tags["generator_config"]
    assert '"WorkspaceName": "default"' in tags["platform_config"]
    assert (tags["team"], run["properties"]["platform"]) == ("vision", "AML")


def test_what_is_wrong_is_refused_and_nothing_is_left(azure: Azure) -> None:
    def refused(**change: Any) -> str:
        error = azure.refused(400, "PUT", "jobs/wrong-sweep", {"properties": body(**change)})
        return str(error["message"])

    assert "search space" in refused(searchSpace={"rate": ["gamma", [1]]})
    assert "does not use" in refused(searchSpace={**body()["searchSpace"], "x": ["randint", [2]]})
    assert "gpu-8" in refused(computeId=f"{WORKSPACE}/computes/gpu-8")
    assert "max_concurrent_trials" in refused(
        limits={"maxTotalTrials": 2, "maxConcurrentTrials": 3}
    )
    assert "wrong-sweep" not in azure.names("jobs")
