"""Hosts as people write them: `lab-1`, `ann@lab-2:2222`, `[fd00::7]:22`.

Owns: reading them, and the machine's name that follows from one.
Leaves: what a name means to ssh, which knows the person's own `~/.ssh/config`.
Always: nothing that ssh or a shell could take for an option or a command gets through; the same
host has the same name under every user, so that running again finds it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchyard.base.errors import InvalidInput

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\\+-]{0,127}\$?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?")
_USUAL_PORT = 22
_LONGEST_NAME = 63
_FORMS = "write `lab-1`, `ann@lab-1` or `ann@lab-1:2222`, with commas between hosts"


@dataclass(frozen=True)
class Host:
    """`text` as it was written; `port` 0 where ssh's own configuration says."""

    text: str
    user: str
    address: str
    port: int

    @property
    def target(self) -> str:
        """As ssh takes it."""
        return f"{self.user}@{self.address}" if self.user else self.address

    @property
    def name(self) -> str:
        """The machine's name."""
        text = f"{self.address}-{self.port}" if self.port not in (0, _USUAL_PORT) else self.address
        return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def read(texts: Iterable[str]) -> list[Host]:
    """Hosts, with commas or spaces between them; each once.

    Raises:
        InvalidInput: one is not a host, or two would be machines of one name.
    """
    words = [word for text in texts for word in re.split(r"[,\s]+", text) if word]
    if not words:
        raise InvalidInput("no host is named", _FORMS)
    hosts: dict[str, Host] = {}
    for word in dict.fromkeys(words):
        host = _host(word)
        before = hosts.setdefault(host.name, host)
        if before is not host:
            raise InvalidInput(
                f"`{before.text}` and `{word}` are both machine `{host.name}`",
                "name each host once",
            )
    return list(hosts.values())


def _host(text: str) -> Host:
    user, at, rest = text.removeprefix("ssh://").rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _wrong(text, f"`{user[:40]}` is not a user's name")
    address, port = _split(text, rest)
    host = Host(text, user, address, port)
    if not host.name or len(host.name) > _LONGEST_NAME:
        raise _wrong(text, f"no machine's name of 1 to {_LONGEST_NAME} characters follows from it")
    return host


def _split(text: str, rest: str) -> tuple[str, int]:
    """The address without brackets, and the port."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", rest)
    if bracketed:
        address, port = bracketed[1], bracketed[2]
    elif rest.count(":") > 1:
        address, port = rest, None
    else:
        address, colon, after = rest.partition(":")
        port = after if colon else None
    is_address = ":" in address and _is_ipv6(address)
    if not is_address and (bracketed or not _HOST.fullmatch(address)):
        raise _wrong(text, f"`{address[:60]}` is not a host's name or address")
    if port is None:
        return address, 0
    if not re.fullmatch(r"[1-9]\d{0,4}", port) or int(port) > 65535:
        raise _wrong(text, f"`{port[:20]}` is not a port")
    return address, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _wrong(text: str, reason: str) -> InvalidInput:
    return InvalidInput(f"`{text[:80]}` is not a host: {reason}", _FORMS)
