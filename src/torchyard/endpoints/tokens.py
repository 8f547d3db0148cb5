"""Keys of endpoints, and the tokens that stand for them.

Owns: how keys are drawn, what a token says, its lifetime.
Leaves: keeping keys to records/store.py, checking them to router/.
Always: a token is signed with its endpoint's own secret, so that it is good for no other one.

Source: https://www.rfc-editor.org/rfc/rfc7519, https://www.rfc-editor.org/rfc/rfc7515 (HS256)
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from torchyard.endpoints.records.types import EndpointKeys

LIFETIME = timedelta(hours=1)
_KEY_BYTES = 32


@dataclass(frozen=True)
class Token:
    """`refresh_after` is when a client should ask for the next."""

    text: str
    ends_at: datetime
    refresh_after: datetime


def new_keys() -> EndpointKeys:
    secret = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    return EndpointKeys(new_key(), new_key(), secret)


def new_key() -> str:
    """As Azure's: letters and digits."""
    while True:
        key = secrets.token_urlsafe(_KEY_BYTES)
        if key.isalnum():
            return key


def sign(token_secret: str, endpoint: str, user: str, now: datetime) -> Token:
    """
    Args:
        token_secret: of `EndpointKeys`: base64.
        endpoint: `<workspace>/<name>`, the token's audience.
    """
    ends_at = now + LIFETIME
    claims = {
        "aud": endpoint,
        "sub": user,
        "iat": int(now.timestamp()),
        "exp": int(ends_at.timestamp()),
    }
    signed = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}"
    key = base64.b64decode(token_secret)
    signature = _base64(hmac.digest(key, signed.encode(), "sha256"))
    return Token(f"{signed}.{signature}", ends_at, now + LIFETIME * 0.75)


def _encoded(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
