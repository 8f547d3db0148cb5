"""The file that `yard-server --messages` names.

Owns: its keys, their checks, reading the mail server's password.
Leaves: talking to mail servers to emails.py, to webhooks to webhooks.py.
Always: the password lies in a file of its own that others can't read, and is read again for each
use; it never travels unencrypted to another machine.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.base import addresses, fields
from torchyard.base.addresses import Network
from torchyard.base.errors import InvalidInput

_KEYS = ("smtp", "allow_networks", "ca_cert")
_SMTP_KEYS = ("host", "port", "tls", "user", "password_file", "sender")
STARTTLS, TLS, NO_TLS = "starttls", "tls", "none"
_PORTS = {STARTTLS: 587, TLS: 465, NO_TLS: 25}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GUIDE = "see the guide `monitoring`"


@dataclass(frozen=True)
class SmtpSettings:
    """A mail server. `tls` is from the start (`tls`), by STARTTLS (`starttls`) or not at all."""

    host: str
    port: int
    tls: str
    sender: str
    user: str = ""
    password_file: Path | None = None

    def password(self) -> str:
        """
        Raises:
            InvalidInput: the file can't be read, or others can read it.
        """
        if self.password_file is None:
            return ""
        try:
            mode = self.password_file.stat().st_mode
            password = self.password_file.read_text().strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"`password_file` `{self.password_file}` can't be read "
                f"({getattr(error, 'strerror', None) or 'it is not a text file'})",
                "the server's user must be able to read it",
            ) from error
        if mode & stat.S_IRWXO:
            raise InvalidInput(
                f"`password_file` `{self.password_file}` can be read by everybody",
                f"run `chmod o= {self.password_file}`",
            )
        return password


@dataclass(frozen=True)
class MessageSettings:
    """How a server sends messages.

    Args:
        smtp: None where it sends no e-mail.
        allow_networks: of loopback and private addresses, those that webhooks may have.
        ca_cert: a PEM file beside the system's certificates; empty for these alone.
        page_url: where people reach the server's web page.
    """

    smtp: SmtpSettings | None = None
    allow_networks: tuple[Network, ...] = ()
    ca_cert: str = ""
    page_url: str = ""
    file: Path | None = field(default=None, compare=False)

    @property
    def files(self) -> list[Path]:
        """What jobs must not see."""
        password_file = self.smtp.password_file if self.smtp else None
        return [file for file in (self.file, password_file) if file is not None]


def read(file: Path | None) -> MessageSettings:
    """
    Args:
        file: None for a server without mail server and webhooks at private addresses.

    Raises:
        InvalidInput: the file can't be read, or a key or value is wrong.
    """
    if file is None:
        return MessageSettings()
    body = fields.settings_in(file, _KEYS, _GUIDE)
    ca_cert = fields.text(body, "ca_cert")
    return MessageSettings(
        smtp=_smtp(body["smtp"], file.parent) if body.get("smtp") else None,
        allow_networks=_networks(body.get("allow_networks")),
        ca_cert=str(file.parent / ca_cert) if ca_cert else "",
        file=file,
    )


def _networks(value: Any) -> tuple[Network, ...]:
    texts = [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(
            "`allow_networks` must be a list of networks",
            'write `"allow_networks": ["10.0.0.0/8"]`',
            at=["allow_networks"],
        )
    return addresses.parse_networks(texts, "allow_networks")


def _smtp(document: Any, folder: Path) -> SmtpSettings:
    body = fields.mapping(document, "`smtp`")
    fields.refuse_unknown(body, _SMTP_KEYS)
    tls = fields.text(body, "tls") or STARTTLS
    if tls not in _PORTS:
        raise InvalidInput(
            f"`tls` is `{tls[:50]}`", f"use one of: {', '.join(_PORTS)}", at=["smtp", "tls"]
        )
    password_file = fields.text(body, "password_file")
    settings = SmtpSettings(
        host=_needed(body, "host"),
        port=_port(body, _PORTS[tls]),
        tls=tls,
        sender=_needed(body, "sender"),
        user=fields.text(body, "user"),
        password_file=folder / password_file if password_file else None,
    )
    if bool(settings.user) != bool(settings.password_file):
        raise InvalidInput("`smtp` needs both `user` and `password_file`, or none", _GUIDE)
    if settings.user and tls == NO_TLS and settings.host not in _LOOPBACK:
        raise InvalidInput(
            f"the password for `{settings.host}` would travel unencrypted",
            "use `tls: starttls` or `tls: tls`",
            at=["smtp", "tls"],
        )
    settings.password()
    return settings


def _port(body: Mapping[str, Any], default: int) -> int:
    port = fields.count(body, "port", ["smtp"], default=default, least=1)
    if port > 65535:
        raise InvalidInput(f"`port` must be between 1 and 65535, not {port}", at=["smtp", "port"])
    return port


def _needed(body: Mapping[str, Any], key: str) -> str:
    value = fields.text(body, key)
    if not value or any(not c.isprintable() or c.isspace() for c in value):
        raise InvalidInput(f"`smtp` has no valid `{key}`", _GUIDE, at=["smtp", key])
    return value
