"""The file that `yard-server --oidc` names.

Owns: its keys, their checks, reading the client's secret.
Leaves: talking to the provider to provider.py, who gets in to admission.py.
Always: the secret lies in a file of its own that others can't read, and is read again for each use.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torchyard.base import fields
from torchyard.base.errors import InvalidInput
from torchyard.workspaces.types import Role, role_named

_KEYS = (
    *("issuer", "client_id", "client_secret_file", "name_claim", "groups_claim", "groups"),
    *("scopes", "session_hours", "ca_cert", "public_url", "link_by_name"),
)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LONGEST_HOURS = 24 * 90


@dataclass(frozen=True)
class Grant:
    """The role that members of a group have; in every workspace if `workspace` is empty."""

    role: Role
    workspace: str = ""


@dataclass(frozen=True)
class OidcSettings:
    """
    Args:
        public_url: how browsers reach this server; the provider knows `…/v1/sign-in/callback`.
        secret_file: None for a client that has no secret.
        name_claim: becomes the person's name.
        link_by_name: an account whose name a person here has is theirs, unlinked: for providers
            whose accounts can't choose their names.
        groups: what members get; people without an account get in only by one of these.
        ca_cert: who signed the provider's certificate; empty for the system's authorities.
    """

    issuer: str
    client_id: str
    public_url: str
    secret_file: Path | None = None
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    groups: Mapping[str, Sequence[Grant]] = field(default_factory=dict)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    session: timedelta = timedelta(hours=24)
    ca_cert: str = ""
    link_by_name: bool = False

    @property
    def trusts_names(self) -> bool:
        """Whether `name_claim` says whose account it is; of addresses, only verified ones count."""
        return self.link_by_name or self.name_claim == "email"

    @property
    def redirect_uri(self) -> str:
        return f"{self.public_url}/v1/sign-in/callback"

    @property
    def has_tls(self) -> bool:
        return self.public_url.startswith("https://")

    def secret(self) -> str:
        """
        Raises:
            InvalidInput: the file can't be read, is empty, or others can read it.
        """
        if self.secret_file is None:
            return ""
        try:
            mode = self.secret_file.stat().st_mode
            secret = self.secret_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"`client_secret_file` `{self.secret_file}` can't be read "
                f"({getattr(error, 'strerror', None) or 'it is not a text file'})",
                "the server's user must be able to read it",
            ) from error
        if mode & stat.S_IRWXO:
            raise InvalidInput(
                f"`client_secret_file` `{self.secret_file}` can be read by everybody",
                f"run `chmod o= {self.secret_file}`",
            )
        if not secret:
            raise InvalidInput(
                f"`client_secret_file` `{self.secret_file}` is empty",
                "write the secret into it that the provider shows for this client",
            )
        return secret


def read(file: Path, public_url: str) -> OidcSettings:
    """
    Args:
        public_url: the server's own idea of it, for a file that says nothing.

    Raises:
        InvalidInput: the file can't be read, or a key or value is wrong.
    """
    body = fields.settings_in(file, _KEYS, "see the guide `sign-in`")
    secret_file = fields.text(body, "client_secret_file")
    settings = OidcSettings(
        issuer=_url(body, "issuer"),
        client_id=_needed(body, "client_id"),
        public_url=_url({"public_url": public_url, **body}, "public_url").rstrip("/"),
        secret_file=file.parent / secret_file if secret_file else None,
        name_claim=fields.text(body, "name_claim") or "preferred_username",
        groups_claim=fields.text(body, "groups_claim") or "groups",
        groups=_groups(body.get("groups") or {}),
        scopes=_scopes(body.get("scopes")),
        session=_session(body.get("session_hours", 24)),
        ca_cert=fields.text(body, "ca_cert"),
        link_by_name=_flag(body, "link_by_name"),
    )
    settings.secret()
    return settings


def is_safe_url(url: str) -> bool:
    """Whether what is sent there can't be listened to: TLS, or this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    return parts.scheme == "http" and host in _LOOPBACK


def _needed(body: Mapping[str, Any], key: str) -> str:
    value = fields.text(body, key)
    if not value:
        raise InvalidInput(f"the sign-in has no `{key}`", "see the guide `sign-in`", at=[key])
    return value


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise InvalidInput(f"`{key}` must be true or false", at=[key])
    return value


def _url(body: Mapping[str, Any], key: str) -> str:
    url = _needed(body, key)
    if not is_safe_url(url) or any(c in url for c in "?# "):
        raise InvalidInput(
            f"`{key}` is `{url[:200]}`, which is not an address with TLS",
            "write `https://…`, without query and fragment",
            at=[key],
        )
    return url


def _groups(document: Any) -> dict[str, Sequence[Grant]]:
    groups: dict[str, Sequence[Grant]] = {}
    for name, value in fields.mapping(document, "`groups`").items():
        entries = value if isinstance(value, list) else [value]
        groups[str(name)] = tuple(_grant(str(name), entry) for entry in entries)
    return groups


def _grant(group: str, document: Any) -> Grant:
    body = fields.mapping(document, f"group `{group}`")
    fields.refuse_unknown(body, ("role", "workspace"))
    return Grant(role_named(_needed(body, "role")), fields.text(body, "workspace"))


def _scopes(value: Any) -> tuple[str, ...]:
    if value is None:
        return OidcSettings.scopes
    if not isinstance(value, list) or not all(isinstance(scope, str) for scope in value):
        raise InvalidInput("`scopes` must be a list of words", at=["scopes"])
    return ("openid", *(scope for scope in value if scope != "openid"))


def _session(hours: Any) -> timedelta:
    if type(hours) not in (int, float) or not 0 < hours <= _LONGEST_HOURS:
        raise InvalidInput(
            f"`session_hours` must be a number up to {_LONGEST_HOURS}, not `{str(hours)[:50]}`",
            at=["session_hours"],
        )
    return timedelta(hours=hours)
