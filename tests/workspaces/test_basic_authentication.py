"""A token as the password of Basic authentication, for clients that know nothing else."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from fastapi import Request

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import NotAuthenticated
from torchyard.workspaces import actions, people
from torchyard.workspaces.access import Access
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Role


@pytest.fixture
def access(db: Database, clock: FakeClock) -> Access:
    actions.ensure_default(db, clock)
    with db.write() as connection:
        people.ensure_owner(connection, "olga", clock.now())
    return Access(db, clock)


def request(credentials: str, kind: str = "Basic") -> Request:
    scope: dict[str, Any] = {
        "type": "http",
        "path": "/v1/whoami",
        "path_params": {},
        "client": ("10.0.0.1", 1),
    }
    return Request({**scope, "headers": [(b"authorization", f"{kind} {credentials}".encode())]})


def encoded(pair: str) -> str:
    return base64.b64encode(pair.encode()).decode()


@pytest.mark.parametrize("name", ["dan", "anyone", ""])
def test_the_password_is_the_token_whatever_the_name(
    db: Database, clock: FakeClock, access: Access, name: str
) -> None:
    people.create(db, clock, "dan", Role.CONTRIBUTOR, "", "olga")
    token = people.new_token(db, clock, "dan", "first", None)
    identity = access.enforce(request(encoded(f"{name}:{token}"), kind="basic"), Permission.LOG)
    assert identity.user == "dan"


@pytest.mark.parametrize(
    "credentials",
    ["", "no base64!", encoded("no-colon"), encoded("dan:"), "/w==", encoded("dan:yard_p_wrong")],
)
def test_other_credentials_are_refused(access: Access, credentials: str) -> None:
    with pytest.raises(NotAuthenticated):
        access.enforce(request(credentials), Permission.LOG)
