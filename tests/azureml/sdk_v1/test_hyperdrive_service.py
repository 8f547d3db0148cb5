"""SDK v1's HyperDrive service with its client's requests; without a scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.jobs import actions
from torchyard.sweeps import actions as sweeps
from workspaces.served import served

RUNS = f"/hyperdrive/v1.0{WORKSPACE}/experiments/hd"
BOUNDARY = "efbd49425a4fc2615a50eca06e116152"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        yield Azure(site, "olga")


def config(**changes: Any) -> dict[str, Any]:
    overrides = {
        "script": "train.py",
        "arguments": ["--num_epochs", 3],
        "target": "local-cluster",
        "framework": "Python",
        "communicator": "None",
        "maxRunDurationSeconds": 600,
        "nodeCount": 1,
        "environment": {"name": "python", "version": "1"},
    }
    return {
        "generator_config": {
            "name": "RANDOM",
            "parameter_space": {"--lr": ["uniform", [0.1, 0.2]], "opt": ["choice", [["a"]]]},
        },
        "max_concurrent_jobs": 2,
        "max_duration_minutes": 10080,
        "max_total_jobs": 4,
        "platform": "AML",
        "platform_config": {"Definition": {"Overrides": overrides, "TargetDetails": None}},
        "policy_config": {"name": "Default"},
        "primary_metric_config": {"goal": "maximize", "name": "acc"},
        **changes,
    }


def post(azure: Azure, document: Any, path: str = "runs") -> Any:
    head = 'Content-Disposition: form-data; name="config"; filename="config.json"'
    form = f"--{BOUNDARY}\r\n{head}\r\n\r\n{json.dumps(document)}\r\n--{BOUNDARY}--\r\n"
    headers = {
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
        "Authorization": f"Bearer {azure.site.tokens[azure.user]}",
    }
    return azure.site.client.post(f"{RUNS}/{path}", content=form.encode(), headers=headers)


@pytest.fixture(scope="module", autouse=True)
def cluster(azure: Azure) -> None:
    properties = {"vmSize": "Standard_D2", "scaleSettings": {"maxNodeCount": 1}}
    content = {"computeType": "AmlCompute", "properties": properties}
    azure.put("computes/local-cluster", content)


def test_a_config_becomes_a_sweep(azure: Azure) -> None:
    answer = post(azure, config())
    assert answer.status_code == 201, answer.text
    name = answer.json()["result"]["platform_config"]["ParentRunId"]
    assert name.startswith("HD_")
    job = actions.get(azure.site.parts.services, "default", name)
    assert (job.type, job.experiment_name) == (sweeps.TYPE, "hd")
    trial = job.document["trial"]
    assert trial["command"] == (
        "python train.py --num_epochs 3 --lr ${{search_space.--lr}} --opt ${{search_space.opt}}"
    )
    assert job.document["limits"]["trial_timeout"] == 600


def test_a_name_of_the_users_own(azure: Azure) -> None:
    answer = post(azure, config(), "hdruns/my-tuning")
    assert answer.json()["result"]["hyperdrive_run_id"] == "my-tuning"


def test_it_is_canceled_through_its_own_service(azure: Azure) -> None:
    post(azure, config(), "hdruns/canceled-tuning")
    answer = azure.site.ask(azure.user, "POST", f"{RUNS}/runs/canceled-tuning/cancel")
    assert (answer.status_code, answer.json()["code"]) == (200, 200)
    status = actions.get(azure.site.parts.services, "default", "canceled-tuning").status.value
    assert status in ("CancelRequested", "Canceled")


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"platform": "AMLPipelines"}, 501, "`pipeline` is not served"),
        ({"platform_config": {}}, 422, "no run configuration"),
        ({"resume_from": [{"run_id": "none"}]}, 404, "`none` does not exist"),
        ({"resume_from": "none"}, 422, "`resume_from` is not a list"),
        ({"resume_child_runs": [{}]}, 422, "has no `run_id`"),
    ],
)
def test_errors_have_a_number_and_a_text_at_the_top(
    azure: Azure, changes: dict[str, Any], status: int, says: str
) -> None:
    answer = post(azure, config(**changes))
    body = answer.json()
    assert body["code"] == answer.status_code, body
    assert says in body["message"], body


def test_a_body_that_is_no_form_is_refused(azure: Azure) -> None:
    answer = azure.site.ask(azure.user, "POST", f"{RUNS}/runs", {"not": "a form"})
    assert "no `config.json`" in answer.json()["message"]
