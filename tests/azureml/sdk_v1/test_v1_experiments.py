"""SDK v1's experiments, children and the rarer requests, as its client makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from workspaces.served import served


class Services(Azure):
    def of(self, service: str, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The status and the JSON of a service's answer."""
        where = f"/{service}/v1.0{WORKSPACE}/{path}"
        answer = self.site.ask(self.who, method, where, body, params=query)
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
    found = v1.of("history", "POST", "experiments:query", body, **query)[1]["value"]
    return [one["name"] for one in found]


def test_experiments_are_found_by_name_and_tag(v1: Services) -> None:
    one = experiment(v1, "birds")
    experiment(v1, "cats")
    v1.of("history", "PATCH", f"experimentids/{one}", {"tags": {"team": "a", "old": "x"}})
    told = v1.of("history", "POST", f"experimentids/{one}/tags:delete", {"tags": ["old"]})[1]
    assert told["tags"] == {"team": "a"}
    assert listed(v1, "(name eq birds)") == ["birds"]
    assert listed(v1, "(name eq no-such)") == []
    assert listed(v1, "(Tags/team eq a)") == ["birds"]
    assert listed(v1, '(Tags/team eq "a")') == ["birds"]
    v1.of("history", "PATCH", f"experimentids/{one}", {"tags": {"said": 'two "words"'}})
    assert listed(v1, '(name eq birds and Tags/said eq "two \\"words\\"")') == ["birds"]


def test_an_archived_experiment_is_listed_apart(v1: Services) -> None:
    one = experiment(v1, "archived")
    told = v1.of("history", "PATCH", f"experimentids/{one}", {"archive": True})[1]
    assert told["archivedTime"]
    assert "archived" not in listed(v1)
    assert listed(v1, viewType="ArchivedOnly") == ["archived"]
    assert "archived" in listed(v1, viewType="All")
    told = v1.of("history", "PATCH", f"experimentids/{one}", {"archive": False})[1]
    assert told["archivedTime"] is None and "archived" in listed(v1)


@pytest.mark.parametrize("body", [{"archive": "yes"}, {"tags": ["a"]}, []])
def test_a_change_of_the_wrong_form_is_refused(v1: Services, body: Any) -> None:
    one = experiment(v1, "wrong")
    status, _ = v1.of("history", "PATCH", f"experimentids/{one}", body)
    assert status == 400


def test_an_experiment_is_not_deleted(v1: Services) -> None:
    one = experiment(v1, "kept")
    status, told = v1.of("history", "DELETE", f"experimentids/{one}")
    assert (status, "archive" in told["error"]["message"]) == (501, True)


def test_children_are_made_and_ended_together(v1: Services) -> None:
    names = ["child-1", "child-2"]
    asked = [{"runId": name, "parentRunId": "parent", "tags": {"n": name}} for name in names]
    v1.of("history", "PATCH", "experiments/family/runs/parent", {"runId": "parent"})
    told = v1.of("history", "PATCH", "experiments/family/batch/runs", {"runs": asked})[1]
    assert sorted(told["runs"]) == names and told["errors"] == {}
    assert told["runs"]["child-1"]["parentRunId"] == "parent"
    ends = [
        {"name": "Microsoft.MachineLearning.Run.Completed", "data": {"RunId": name}}
        for name in names
    ]
    v1.of("history", "POST", "experiments/family/batch/events", {"events": ends})
    there = v1.of("history", "GET", "experiments/family/runs/parent/children")[1]["value"]
    assert {one["runId"]: one["status"] for one in there} == dict.fromkeys(names, "Completed")


def test_why_a_run_failed_is_told(v1: Services) -> None:
    v1.of("history", "PATCH", "experiments/family/runs/failing", {"runId": "failing"})
    said = {"error": {"code": "BadColumn", "message": "no such column: age"}}
    event = {"name": "Microsoft.MachineLearning.Run.Error", "data": {"ErrorResponse": said}}
    v1.of("history", "POST", "experiments/family/runs/failing/events", event)
    told = v1.of("history", "GET", "experiments/family/runs/failing/details")[1]
    assert told["status"] == "Failed"
    assert told["error"]["error"]["message"] == "no such column: age"


def test_an_error_of_models_is_in_its_client_s_form(v1: Services) -> None:
    status, told = v1.of("modelmanagement", "GET", "models/no-such:1")
    assert (status, told["statusCode"]) == (404, 404)
    assert told["correlation"]["message"] == told["error"]["message"]
    status, told = v1.of("modelmanagement", "POST", "packages", {})
    assert status == 501 and "web services" in told["message"]


def test_secrets_are_refused(v1: Services) -> None:
    status, told = v1.of("credential", "PUT", "secrets", {})
    assert status == 501 and "environment_variables" in told["error"]["message"]


def test_a_data_lake_is_not_registered_by_v1(v1: Services) -> None:
    asked = {"name": "lake", "dataStoreType": "AzureDataLakeGen2"}
    status, told = v1.of("datastore", "POST", "datastores", asked)
    assert status == 501 and "AzureDataLakeGen2" in told["error"]["message"]
    status, told = v1.of("datastore", "POST", "datastores", {"name": "workspaceblobstore"})
    assert status == 400 and "already exists" in told["error"]["message"]
