"""JSON Web Tokens signed by this server, as Azure's clients require them.

Owns: the claims, signing them, mapping a JWT back to the token it was issued for.
Leaves: the key to base/home/signing.py, authentication and whether the source token is still valid
to actions.py.
Always: a JWT is valid only as long as the token it was issued for, and for an hour at most where
a client can fetch the next; only this server verifies JWTs, so one secret key is enough; their
length is bounded, so that shared/masking.py finds them in text.

Source: https://www.rfc-editor.org/rfc/rfc7519, https://www.rfc-editor.org/rfc/rfc7515 (HS256),
https://learn.microsoft.com/en-us/entra/identity-platform/access-token-claims-reference
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.base.home import signing
from torchyard.shared import masking

LIFETIME = timedelta(hours=1)

_LONGEST_AUDIENCE = 200
GET_ANOTHER = "run `yard client-env` again and start the program with what it prints"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


# `kid` distinguishes our tokens from others; shared/masking.py searches for this text.
HEAD = _encoded(b'{"alg":"HS256","kid":"torchyard","typ":"JWT"}')


@dataclass(frozen=True)
class SourceToken:
    """The token a JWT was issued for, by the SHA-256 that the database stores."""

    token_hash: str
    ends_at: datetime


class Signer:
    """Signs and reads the tokens of one home's servers.

    Args:
        server_id: distinguishes this home's servers from any other.
    """

    def __init__(self, home: Path, server_id: str) -> None:
        self._key = signing.key(home, "jwt")
        self._server_id = server_id
        self.tenant = str(uuid.uuid5(uuid.NAMESPACE_OID, server_id))

    def sign(
        self,
        token: str,
        user: str,
        audience: str,
        now: datetime,
        ends_at: datetime | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> str:
        """A JWT that stands for `token`.

        Args:
            token: a person's or a run's, which the caller has authenticated.
            audience: the resource that the client requested.
            ends_at: when it expires; an hour from now when None.
            more: further claims.

        Raises:
            InvalidInput: the audience is too long.
        """
        audience = audience.strip().removesuffix("/.default").rstrip("/")
        if len(audience) > _LONGEST_AUDIENCE:
            raise InvalidInput(f"`resource` is longer than {_LONGEST_AUDIENCE} characters")
        person = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._server_id}/{user}"))
        claims = {
            "aud": audience,
            "iss": f"https://sts.windows.net/{self.tenant}/",
            "iat": int(now.timestamp()),
            "nbf": int(now.timestamp()),
            "exp": int((ends_at or now + LIFETIME).timestamp()),
            "oid": person,
            "sub": person,
            "tid": self.tenant,
            "name": user,
            "upn": user,
            "unique_name": user,
            "idtyp": "user",
            "ver": "1.0",
            "behind": hashlib.sha256(token.encode()).hexdigest(),
            **(more or {}),
        }
        signed = f"{HEAD}.{_encoded(json.dumps(claims, separators=(',', ':')).encode())}"
        made = f"{signed}.{self._signature(signed)}"
        assert len(made) <= masking.LONGEST, "it would not be masked in logs"
        return made

    def read(self, jwt: str, now: datetime) -> SourceToken:
        """
        Raises:
            NotAuthenticated: it is expired, or this server did not sign it.
        """
        signed, _, signature = jwt.rpartition(".")
        if not jwt.startswith(f"{HEAD}.") or len(jwt) > masking.LONGEST:
            raise NotAuthenticated(
                "the token was not issued by this server",
                f"tokens of Microsoft Entra or of other programs are not accepted: {GET_ANOTHER}",
                code="foreign_token",
            )
        if not hmac.compare_digest(signature.encode(), self._signature(signed).encode()):
            raise NotAuthenticated(
                "the token was signed by another torchyard server, or was changed",
                GET_ANOTHER,
                code="foreign_token",
            )
        claims = _claims(signed)
        ends_at = datetime.fromtimestamp(claims["exp"], tz=now.tzinfo)
        if ends_at <= now:
            raise NotAuthenticated(
                f"the token expired at {ends_at:%Y-%m-%d %H:%M} UTC",
                "a client with a credential fetches the next one itself; if you copied the token, "
                "fetch a new one",
                code="token_expired",
            )
        return SourceToken(claims["behind"], ends_at)

    def _signature(self, signed: str) -> str:
        return _encoded(hmac.digest(self._key, signed.encode("utf-8", "surrogateescape"), "sha256"))


def is_jwt(token: str) -> bool:
    """Whether it looks like a JWT, anybody's; torchyard's own tokens start differently."""
    return token.startswith("ey") and token.count(".") == 2


def _claims(signed: str) -> Any:
    """The claims of a JWT whose signature was verified."""
    content = signed.partition(".")[2]
    try:
        return json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
    except (ValueError, binascii.Error) as error:
        raise AssertionError("a token with our signature can't be read") from error
