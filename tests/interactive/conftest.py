"""A server of the session's own, with people beside its owner."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from end_to_end.yard_under_test import Yard, running_yard
from torchyard.base.http import Transport


@pytest.fixture(scope="session")
def yard() -> Iterator[Yard]:
    with running_yard("interactive") as yard:
        yield yard


@pytest.fixture(autouse=True)
def nothing_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "yard" in request.fixturenames:
        request.getfixturevalue("yard").quiet_down()


@pytest.fixture(scope="session")
def people(yard: Yard) -> Iterator[dict[str, Transport]]:
    """Transports of an owner, and of people with every other role."""
    url = json.loads((yard.home / "server.json").read_text())["url"]
    owner = Transport(url, (yard.home / "token").read_text().strip())
    transports = {"owner": owner}
    for name, role in {
        "ada": "data scientist",
        "bob": "data scientist",
        "carl": "contributor",
        "rita": "reader",
    }.items():
        owner.post("/v1/users", {"name": name, "role": role, "workspace": "default"})
        made = owner.post(f"/v1/users/{name}/tokens", {"name": "tests"})
        transports[name] = Transport(url, made["token"])
    yield transports
    for transport in transports.values():
        transport.close()
