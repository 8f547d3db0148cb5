"""Compute instances on a real server: their files, their people, idle ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, running_yard, wait_until
from interactive.service_visits import Visitor
from torchyard.base.errors import Forbidden
from torchyard.base.http import Transport

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
_INSTANCES = "/v1/workspaces/default/instances"
_JOBS = "/v1/workspaces/default/jobs"
_ENVIRONMENT = {"pip_requirements": "jupyterlab>=4.2,<5\nipykernel>=6.29\n"}


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with running_yard("instances") as yard:
        yield yard
        yard.quiet_down()


@pytest.fixture(scope="module")
def owner(yard: Yard) -> Iterator[Transport]:
    url = json.loads((yard.home / "server.json").read_text())["url"]
    transport = Transport(url, (yard.home / "token").read_text().strip())
    yield transport
    transport.close()


def person(owner: Transport, name: str, role: str) -> Transport:
    owner.post("/v1/users", {"name": name, "role": role, "workspace": "default"})
    made = owner.post(f"/v1/users/{name}/tokens", {"name": "tests"})
    return Transport(owner.url, made["token"])


def wait_for(transport: Transport, name: str, state: str) -> dict[str, Any]:
    wait_until(
        lambda: transport.get(f"{_INSTANCES}/{name}")["state"] == state, 400, f"{name} is {state}"
    )
    answer: dict[str, Any] = transport.get(f"{_INSTANCES}/{name}")
    return answer


def open_lab(transport: Transport, name: str) -> Visitor:
    job = transport.get(f"{_INSTANCES}/{name}")["job"]
    wait_until(
        lambda: [
            row["state"] for row in transport.get(f"{_JOBS}/{job}/services")["value"]
        ] == ["Running"],
        300,
        "its JupyterLab listens",
    )  # fmt: skip
    return Visitor.signed_in(str(transport.post(f"{_INSTANCES}/{name}/link")["url"]))


def save(lab: Visitor, name: str, text: str) -> int:
    body = json.dumps({"type": "file", "format": "text", "content": text}).encode()
    token = lab.cookies.get("_xsrf", "")
    return lab.get(
        f"/api/contents/{name}", "PUT", body, Content_Type="application/json", X_XSRFToken=token
    ).status


def test_an_instance_keeps_its_files_is_its_persons_own_and_stops_when_idle(
    yard: Yard, owner: Transport
) -> None:
    carl, bob = person(owner, "carl", "contributor"), person(owner, "bob", "contributor")
    document = {"type": "computeinstance", "torchyard": {"environment": _ENVIRONMENT}}
    carl.put(f"{_INSTANCES}/carls-lab", document)
    wait_for(carl, "carls-lab", "Running")
    lab = open_lab(carl, "carls-lab")
    assert b"JupyterLab" in lab.get("/lab").body
    assert save(lab, "mine.txt", "kept over a stop") in (200, 201)
    for verb in ("link", "stop", "start", "restart"):
        with pytest.raises(Forbidden):
            bob.post(f"{_INSTANCES}/carls-lab/{verb}")
    with pytest.raises(Forbidden):
        bob.delete(f"{_INSTANCES}/carls-lab")
    carl.post(f"{_INSTANCES}/carls-lab/restart")
    wait_until(
        lambda: carl.get(f"{_INSTANCES}/carls-lab")["job"] == "instance-carls-lab-2", 200, "again"
    )
    wait_for(carl, "carls-lab", "Running")
    lab = open_lab(carl, "carls-lab")
    assert json.loads(lab.get("/api/contents/mine.txt").body)["content"] == "kept over a stop"
    carl.put(
        f"{_INSTANCES}/carls-lab",
        {**document, "idle_time_before_shutdown_minutes": 1},
    )
    stopped = wait_for(carl, "carls-lab", "Stopped")
    assert "without use" in stopped["message"]
    assert lab.get("/lab").status in (404, 502)
    names = [row["name"] for row in json.loads(yard("compute", "list", "-o", "json"))]
    assert {"local", "carls-lab"} <= set(names)
    carl.delete(f"{_INSTANCES}/carls-lab")
    for transport in (carl, bob):
        transport.close()
