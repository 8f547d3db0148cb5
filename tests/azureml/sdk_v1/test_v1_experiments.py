"""SDK v1's experiments, children and rarer requests, as its client sends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from workspaces.served import served


class Services(Azure):
    def of(self, service: str, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The status and the JSON of a service's response."""
        where = f"/{service}/v1.0{WORKSPACE}/{path}"
        answer = self.site.ask(self.user, method, where, body, params=query)
        return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Services]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        yield Services(site, "olga")


def experiment(v1: Services, name: str) -> str:
    return str(v1.of("history", "POST", f"experiments/{name}")[1]["experimentId"])


def listed(v1: Services, filter: str = "", **query: str) -> list[str]:
    body = {"filter": filter} if filter else {}
    result = v1.of("history", "POST", "experiments:query", body, **query)[1]["value"]
    return [item["name"] for item in result]


def test_experiments_are_found_by_name_and_tag(v1: Services) -> None:
    item = experiment(v1, "birds")
    experiment(v1, "cats")
    v1.of("history", "PATCH", f"experimentids/{item}", {"tags": {"team": "a", "old": "x"}})
    response = v1.of("history", "POST", f"experimentids/{item}/tags:delete", {"tags": ["old"]})[1]
    assert response["tags"] == {"team": "a"}
    assert listed(v1, "(name eq birds)") == ["birds"]
    assert listed(v1, "(name eq no-such)") == []
    assert listed(v1, "(Tags/team eq a)") == ["birds"]
    assert listed(v1, '(Tags/team eq "a")') == ["birds"]
    v1.of("history", "PATCH", f"experimentids/{item}", {"tags": {"said": 'two "words"'}})
    assert listed(v1, '(name eq birds and Tags/said eq "two \\"words\\"")') == ["birds"]


def test_an_archived_experiment_is_listed_apart(v1: Services) -> None:
    item = experiment(v1, "archived")
    response = v1.of("history", "PATCH", f"experimentids/{item}", {"archive": True})[1]
    assert response["archivedTime"]
    assert "archived" not in listed(v1)
    assert listed(v1, viewType="ArchivedOnly") == ["archived"]
    assert "archived" in listed(v1, viewType="All")
    response = v1.of("history", "PATCH", f"experimentids/{item}", {"archive": False})[1]
    assert response["archivedTime"] is None and "archived" in listed(v1)


@pytest.mark.parametrize("body", [{"archive": "yes"}, {"tags": ["a"]}, []])
def test_a_change_of_the_wrong_form_is_refused(v1: Services, body: Any) -> None:
    item = experiment(v1, "wrong")
    status, _ = v1.of("history", "PATCH", f"experimentids/{item}", body)
    assert status == 400


def test_an_experiment_is_not_deleted(v1: Services) -> None:
    item = experiment(v1, "kept")
    status, response = v1.of("history", "DELETE", f"experimentids/{item}")
    assert (status, "archive" in response["error"]["message"]) == (501, True)


def test_children_are_created_and_ended_in_a_batch(v1: Services) -> None:
    names = ["child-1", "child-2"]
    request = [{"runId": name, "parentRunId": "parent", "tags": {"n": name}} for name in names]
    v1.of("history", "PATCH", "experiments/family/runs/parent", {"runId": "parent"})
    response = v1.of("history", "PATCH", "experiments/family/batch/runs", {"runs": request})[1]
    assert sorted(response["runs"]) == names and response["errors"] == {}
    assert response["runs"]["child-1"]["parentRunId"] == "parent"
    ends = [
        {"name": "Microsoft.MachineLearning.Run.Completed", "data": {"RunId": name}}
        for name in names
    ]
    v1.of("history", "POST", "experiments/family/batch/events", {"events": ends})
    existing = v1.of("history", "GET", "experiments/family/runs/parent/children")[1]["value"]
    assert {item["runId"]: item["status"] for item in existing} == dict.fromkeys(names, "Completed")


def test_a_tag_without_a_value_is_kept_and_found(v1: Services) -> None:
    run = "experiments/tags/runs/tagged"
    v1.of("history", "PATCH", run, {"runId": "tagged", "tags": {"x": None, "a b": "v w"}})
    assert v1.of("history", "GET", run)[1]["tags"] == {"x": None, "a b": "v w"}
    for condition in ("Tags/x ne null or Tags/x eq null", "Tags/x eq null", 'Tags/a b eq "v w"'):
        query = {"filter": f"(({condition}) and (ParentRunId eq null))"}
        _, matching = v1.of("history", "POST", "experiments/tags/runs:query", query)
        assert [item["runId"] for item in matching["value"]] == ["tagged"], condition


def test_a_runs_error_is_in_its_details(v1: Services) -> None:
    v1.of("history", "PATCH", "experiments/family/runs/failing", {"runId": "failing"})
    fields = {"error": {"code": "BadColumn", "message": "no such column: age"}}
    event = {"name": "Microsoft.MachineLearning.Run.Error", "data": {"ErrorResponse": fields}}
    v1.of("history", "POST", "experiments/family/runs/failing/events", event)
    response = v1.of("history", "GET", "experiments/family/runs/failing/details")[1]
    assert response["status"] == "Failed"
    assert response["error"]["error"]["message"] == "no such column: age"


def test_errors_of_models_have_the_form_of_their_client(v1: Services) -> None:
    status, response = v1.of("modelmanagement", "GET", "models/no-such:1")
    assert (status, response["statusCode"]) == (404, 404)
    assert response["correlation"]["message"] == response["error"]["message"]
    status, response = v1.of("modelmanagement", "POST", "packages", {})
    assert status == 501 and "`Model.deploy`" in response["message"]


def test_secrets_are_refused(v1: Services) -> None:
    status, response = v1.of("credential", "PUT", "secrets", {})
    assert status == 501 and "environment_variables" in response["error"]["message"]


def test_a_data_lake_is_not_registered_by_v1(v1: Services) -> None:
    request = {"name": "lake", "dataStoreType": "AzureDataLakeGen2"}
    status, response = v1.of("datastore", "POST", "datastores", request)
    assert status == 501 and "AzureDataLakeGen2" in response["error"]["message"]
    status, response = v1.of("datastore", "POST", "datastores", {"name": "workspaceblobstore"})
    assert status == 400 and "already exists" in response["error"]["message"]
