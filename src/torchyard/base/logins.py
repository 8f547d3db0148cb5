"""The servers that this user has logged in to.

Owns: `servers.json` of the home folder: addresses, tokens, private certificates, which is meant;
the machine's own file that names a shared server.
Leaves: what of it counts to settings.py.
Always: only its user reads it (mode 0600); a malformed file is named in an error, not ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput

FILE = "servers.json"
SITE_FILE = Path("/etc/torchyard/server.json")
LOOPBACK = ("http://127.0.0.1:", "http://localhost:", "http://[::1]:")
"""How the addresses of servers begin that only this machine reaches, without TLS."""


@dataclass(frozen=True)
class Login:
    """One server. `ca_cert` is a PEM file, empty for the system's certificates."""

    url: str
    token: str = field(default="", repr=False)
    ca_cert: str = ""
    user: str = ""


@dataclass(frozen=True)
class Logins:
    """`current` is the URL that commands go to; empty for the server of this machine."""

    current: str = ""
    servers: Mapping[str, Login] = field(default_factory=dict)

    def with_login(self, login: Login) -> Logins:
        """It becomes the current one."""
        return Logins(login.url, {**self.servers, login.url: login})

    def without(self, url: str) -> Logins:
        remaining = {name: login for name, login in self.servers.items() if name != url}
        return Logins("" if self.current == url else self.current, remaining)


def read(home: Path) -> Logins:
    """What is known; nothing when there is no file.

    Raises:
        InvalidInput: the file can't be read, or is something else.
    """
    document = _json(home / FILE)
    if document is None:
        return Logins()
    try:
        servers = {
            url: Login(url, str(entry["token"]), str(entry["ca_cert"]), str(entry["user"]))
            for url, entry in document["servers"].items()
        }
        return Logins(str(document["current"]), servers)
    except (KeyError, TypeError, AttributeError):
        raise InvalidInput(
            f"`{home / FILE}` is not what `yard login` writes", "remove it, then `yard login` again"
        ) from None


def write(home: Path, logins: Logins) -> None:
    """Replace the file, whole or not at all."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    servers = {
        url: {"token": login.token, "ca_cert": login.ca_cert, "user": login.user}
        for url, login in logins.servers.items()
    }
    content = json.dumps({"current": logins.current, "servers": servers}, indent=2) + "\n"
    partial = home / f".{FILE}.{os.getpid()}"
    opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(partial, home / FILE)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def site(file: Path = SITE_FILE) -> Login | None:
    """The shared server that the machine's administrator named for everybody; None when none is.

    Raises:
        InvalidInput: the file is something else.
    """
    document = _json(file)
    if document is None:
        return None
    url = document.get("url") if isinstance(document, dict) else None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidInput(
            f"`{file}` names no server",
            'the administrator of this machine writes `{"url": "https://host:8766"}` into it',
        )
    return Login(url.rstrip("/"), ca_cert=str(document.get("ca_cert") or ""))


def url_of(text: str) -> str:
    """An address as it is kept.

    Raises:
        InvalidInput: it is none.
    """
    url = text.strip()
    if "://" not in url:
        url = f"https://{url}"
    scheme, _, rest = url.partition("://")
    rest = rest.rstrip("/")
    if scheme not in ("http", "https") or not rest or any(c in rest for c in "/?#@ "):
        raise InvalidInput(f"`{text}` is not a server's address", "write `https://host:8766`")
    return f"{scheme}://{rest}"


def checked_token(token: str) -> str:
    """
    Raises:
        InvalidInput: it is not one word.
    """
    if not token or any(c.isspace() or not c.isprintable() for c in token):
        raise InvalidInput(
            "that is not a token",
            "a token is one word that begins with `yard_p_`; `yard user token create NAME --query "
            "token -o tsv` prints nothing else",
        )
    return token


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput(
            f"`{file}` can't be read ({error.strerror})", "see who owns it"
        ) from error
    except ValueError:
        raise InvalidInput(f"`{file}` is not JSON", "remove it, or repair it") from None
