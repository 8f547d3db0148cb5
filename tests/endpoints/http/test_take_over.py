"""Code runs as the person who wrote it: changes of what belongs to another, and taking it over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endpoints.http.test_endpoint_routes import document
from torchyard.endpoints.records import store
from torchyard.endpoints.records.types import Deployment, EndpointKeys
from workspaces.served import HERE, Served, served

DIGITS = f"{HERE}/online-endpoints/digits"
BLUE = f"{DIGITS}/deployments/blue"
BATCH = f"{HERE}/batch-endpoints/nightly"
BATCH_BLUE = f"{BATCH}/deployments/blue"
ARM = (
    "/subscriptions/local/resourceGroups/torchyard/providers/Microsoft.MachineLearningServices"
    "/workspaces/default/onlineEndpoints/digits/deployments/blue"
)
TAKE_OVER = {"torchyard": {"take_over": True}}


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    """Carl, a contributor, has endpoints with a deployment each; cora is another contributor."""
    with served(tmp_path, database_url) as made:
        made.add("cora", "contributor")
        made.ok("carl", "PUT", f"{HERE}/computes/other", {})
        made.ok("carl", "PUT", DIGITS, {})
        made.ok("carl", "PUT", BLUE, document(made))
        made.ok("carl", "PUT", BATCH, {})
        made.ok("carl", "PUT", BATCH_BLUE, batch_document(made))
        yield made


def batch_document(site: Served) -> dict[str, Any]:
    whole = document(site)
    return {key: whole[key] for key in ("model", "code_configuration", "environment")}


def online(site: Served) -> Deployment:
    with site.parts.services.db.read() as connection:
        (deployment,) = store.deployments_in(connection, "default", "digits")
    return deployment


def keys(site: Served) -> EndpointKeys:
    with site.parts.services.db.read() as connection:
        endpoint = store.endpoint_named(connection, "default", "digits")
        assert endpoint is not None
        return store.keys_of(connection, endpoint)


@pytest.mark.parametrize(
    "changes",
    [
        {"instance_count": 2},
        {"request_settings": {"request_timeout_ms": 9000}},
        {"description": "for the night", "tags": {"team": "vision"}},
    ],
)
def test_a_number_or_a_label_of_anothers_deployment_leaves_it_its_owners(
    site: Served, changes: dict[str, Any]
) -> None:
    changed = site.ok("cora", "PATCH", BLUE, changes)
    assert changed["owner"] == "carl"
    assert online(site).owner == "carl"


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"conda_file": {"dependencies": ["python=3.12"]}}},
        {"environment_variables": {"PYTHONSTARTUP": "/tmp/x.py"}},
        {"torchyard": {"cluster": "other"}},
        {"tags": {"torchyard.cluster": "other"}},
    ],
)
def test_what_anothers_deployment_runs_is_not_changed_without_taking_it_over(
    site: Served, changes: dict[str, Any]
) -> None:
    before = online(site)
    answer = site.ask("cora", "PATCH", BLUE, changes)
    assert answer.status_code == 403, answer.text
    assert online(site) == before


def test_the_refusal_says_beforehand_what_taking_over_means(site: Served) -> None:
    error = site.refused("cora", "PATCH", BLUE, {"environment_variables": {"A": "b"}})
    assert error["code"] == "must_take_over"
    assert "`carl`" in error["message"] and "--take-over" in error["hint"]
    assert "account and rights of `cora`" in error["hint"]


@pytest.mark.parametrize(
    "word",
    [
        TAKE_OVER,
        {"tags": {"torchyard.take_over": "true"}},
        {"properties": {"torchyard.take_over": "true"}},
    ],
)
def test_by_a_word_of_its_own_a_deployment_is_taken_over(
    site: Served, word: dict[str, Any]
) -> None:
    changed = site.ok("cora", "PATCH", BLUE, {**word, "environment_variables": {"A": "b"}})
    assert changed["owner"] == "cora"
    deployment = online(site)
    assert (deployment.owner, deployment.revision) == ("cora", 2)
    assert "take_over" not in str(deployment.document), "it is said once, not kept"


def test_taking_over_changes_nothing_else_and_starts_its_instances_again(site: Served) -> None:
    before = online(site)
    site.ok("cora", "PATCH", BLUE, TAKE_OVER)
    after = online(site)
    assert (after.owner, after.document, after.revision) == ("cora", before.document, 2)


def test_who_may_not_change_it_does_not_take_it_over(site: Served) -> None:
    for path in (DIGITS, BLUE, BATCH, BATCH_BLUE):
        site.refused("dan", "PATCH", path, TAKE_OVER)
    assert online(site).owner == "carl"


def test_an_endpoint_that_is_taken_over_gets_new_keys(site: Served) -> None:
    before = keys(site)
    assert site.ok("cora", "PATCH", DIGITS, {"description": "x"})["owner"] == "carl"
    assert keys(site) == before
    assert site.ok("cora", "PATCH", DIGITS, TAKE_OVER)["owner"] == "cora"
    after = keys(site)
    assert not {*vars(before).values()} & {*vars(after).values()}


def test_a_word_that_is_neither_true_nor_false_is_refused(site: Served) -> None:
    answer = site.ask("cora", "PATCH", BLUE, {"torchyard": {"take_over": "perhaps"}})
    assert answer.status_code == 400, answer.text


def test_a_batch_deployment_is_taken_over_by_a_word_too(site: Served) -> None:
    changes = {"settings": {"mini_batch_size": 3}, "resources": {"instance_count": 1}}
    assert site.ok("cora", "PATCH", BATCH_BLUE, changes)["owner"] == "carl"
    code = {"environment_variables": {"A": "b"}}
    assert site.refused("cora", "PATCH", BATCH_BLUE, code)["code"] == "must_take_over"
    assert site.ok("cora", "PATCH", BATCH_BLUE, {**code, **TAKE_OVER})["owner"] == "cora"


def test_a_clients_put_of_what_it_read_leaves_the_owner(site: Served) -> None:
    """As Azure's clients change the number of instances: they read, change and put the whole."""
    query = "?api-version=2024-04-01"
    resource = site.ok("cora", "GET", ARM + query)
    body = {key: resource[key] for key in ("properties", "location", "kind", "tags")}
    body["sku"] = {**resource["sku"], "capacity": 3}
    assert site.ask("cora", "PUT", ARM + query, body).status_code in (200, 201)
    assert online(site).owner == "carl"
    body["properties"]["environmentVariables"] = {"A": "b"}
    refused = site.ask("cora", "PUT", ARM + query, body)
    assert refused.status_code == 403, refused.text
    body["properties"]["properties"] = {"torchyard.take_over": "true"}
    assert site.ask("cora", "PUT", ARM + query, body).status_code in (200, 201)
    assert online(site).owner == "cora"


def test_a_schedule_of_releases_is_replaced_by_its_owner_alone(site: Served) -> None:
    schedule = f"{HERE}/release-schedules/vision"
    environment = {"name": "vision", "pip_requirements": ["six"]}
    site.ok("carl", "POST", f"{HERE}/environments", environment)
    site.ok("carl", "PUT", schedule, {"every_s": 86400})
    for who in ("dan", "cora"):
        site.refused(who, "PUT", schedule, {"every_s": 7200})
    site.refused("dan", "PUT", schedule, {"every_s": 7200, **TAKE_OVER})
    site.refused("dan", "DELETE", schedule)
    made = site.ok("cora", "PUT", schedule, {"every_s": 7200, **TAKE_OVER})
    assert (made["owner"], made["every_s"]) == ("cora", 7200)
    site.ok("carl", "DELETE", schedule)
