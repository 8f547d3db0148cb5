"""Keys and tokens of endpoints, for those who may see them.

Owns: showing and replacing keys, making tokens, saying who may call an endpoint.
Leaves: how keys are drawn to tokens.py, checking them to router/.
Always: nothing of this is logged; an endpoint gives out what its auth_mode takes, nothing else.
"""

from __future__ import annotations

import re

from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.endpoints import tokens
from torchyard.endpoints.actions import endpoints
from torchyard.endpoints.records import news, store
from torchyard.endpoints.records.types import AuthMode, EndpointKeys
from torchyard.endpoints.tokens import Token
from torchyard.jobs.services import RecordServices
from torchyard.workspaces.types import Identity

KEY_TYPES = ("primary", "secondary")
# What RFC 6750 allows in a bearer token, as long as two UUIDs are or longer.
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]{32,128}\Z", re.ASCII)


def keys(db: Database, workspace: str, name: str) -> EndpointKeys:
    """
    Raises:
        Conflict: the endpoint takes tokens.
    """
    endpoint = endpoints.get(db, workspace, name)
    _require(endpoint.auth_mode is AuthMode.KEY, name, endpoint.auth_mode, "keys")
    with db.read() as connection:
        return store.keys_of(connection, endpoint)


def regenerate(
    services: RecordServices,
    workspace: str,
    name: str,
    key_type: str,
    identity: Identity,
    value: str = "",
) -> EndpointKeys:
    """Replace one key; the other one stays good.

    Args:
        value: the new key; one is drawn when empty.

    Raises:
        InvalidInput: the type of key is neither primary nor secondary, or the value is too short to
            be safe, or can't be sent in a header.
        Forbidden: the endpoint is somebody else's.
    """
    key_type = key_type.lower()
    if key_type not in KEY_TYPES:
        raise InvalidInput(
            f"`{key_type[:40]}` is not a type of key", "use `primary` or `secondary`",
            at=("key_type",),
        )  # fmt: skip
    if value and not _KEY.match(value):
        raise InvalidInput(
            "the key is not one that callers can send",
            "use 32 to 128 letters, digits and `-._~+/=`, or leave it out",
            at=("key_value",),
        )
    endpoint = endpoints.get(services.db, workspace, name)
    endpoints.refuse_foreign(services.db, endpoint, identity)
    _require(endpoint.auth_mode is AuthMode.KEY, name, endpoint.auth_mode, "keys")
    with services.db.write() as connection:
        store.change_keys(connection, endpoint, **{key_type: value or tokens.new_key()})
        made = store.keys_of(connection, endpoint)
    services.signals.notify(news.ENDPOINTS)
    return made


def token(services: RecordServices, workspace: str, name: str, identity: Identity) -> Token:
    """A token that is good for this endpoint for an hour.

    Raises:
        Conflict: the endpoint takes keys, or the tokens of people.
    """
    endpoint = endpoints.get(services.db, workspace, name)
    _require(endpoint.auth_mode is AuthMode.AML_TOKEN, name, endpoint.auth_mode, "tokens")
    with services.db.read() as connection:
        secret = store.keys_of(connection, endpoint).token_secret
    audience = f"{endpoint.workspace}/{endpoint.name}"
    return tokens.sign(secret, audience, identity.user, services.clock.now())


def _require(holds: bool, name: str, mode: AuthMode, credential: str) -> None:
    if holds:
        return
    hints = {
        AuthMode.KEY: "ask for its keys",
        AuthMode.AML_TOKEN: "ask for a token",
        AuthMode.AAD_TOKEN: "call it with your own token of this server",
    }
    raise Conflict(
        f"endpoint `{name}` has `auth_mode: {mode.value}`, and no {credential}",
        hints[mode],
        code="wrong_auth_mode",
    )
