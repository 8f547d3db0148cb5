"""Who to be at a registry, as docker and podman keep it.

Owns: `config.json` of docker and `auth.json` of podman, programs that keep passwords for them.
Leaves: sending them to registry.py.
Always: a password is neither printed nor put on a command line; what is written for one registry is
used for no other.

Source: https://docs.docker.com/reference/cli/docker/login/ (files, `auths`, `credHelpers`,
`credsStore`).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput

_HELPER_S = 30.0
_HELPER = re.compile(r"[\w.-]+", re.ASCII)
# Docker writes its own registry by this old address.
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")
_OLD_DOCKER_HUB = "https://index.docker.io/v1/"
_TOKEN_USER = "<token>"


@dataclass(frozen=True)
class Credentials:
    """A user with a password, or an `identity_token` that a token service takes for both."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


def find(registry: str, variables: Mapping[str, str]) -> Credentials | None:
    """What docker or podman would use for the registry; None if nobody has logged in to it.

    Args:
        variables: the process environment.

    Raises:
        InvalidInput: a file that names the registry is not valid.
    """
    for file in _files(variables):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        credentials = _in_file(file, text, registry, variables)
        if credentials is not None:
            return credentials
    return None


def _files(variables: Mapping[str, str]) -> list[Path]:
    home = variables.get("HOME") or variables.get("USERPROFILE") or str(Path.home())
    docker = Path(variables.get("DOCKER_CONFIG") or Path(home) / ".docker") / "config.json"
    auth_file = variables.get("REGISTRY_AUTH_FILE")
    runtime = variables.get("XDG_RUNTIME_DIR")
    config = Path(variables.get("XDG_CONFIG_HOME") or Path(home) / ".config")
    podmans = [Path(runtime) / "containers" / "auth.json"] if runtime else []
    podmans.append(config / "containers" / "auth.json")
    return [*([Path(auth_file)] if auth_file else ()), *podmans, docker]


def _in_file(
    file: Path, text: str, registry: str, variables: Mapping[str, str]
) -> Credentials | None:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"`{file}` is not JSON", "log in again: `docker login`") from error
    if not isinstance(document, dict):
        return None
    names = _names(registry)
    helpers = document.get("credHelpers")
    for name in names:
        helper = helpers.get(name) if isinstance(helpers, dict) else None
        if isinstance(helper, str):
            return _from_helper(helper, name, variables)
    entries = document.get("auths")
    for name in names:
        entry = entries.get(name) if isinstance(entries, dict) else None
        if isinstance(entry, dict) and (credentials := _of_entry(file, name, entry)):
            return credentials
    store = document.get("credsStore")
    if isinstance(store, str) and store:
        for name in names:
            if credentials := _from_helper(store, name, variables):
                return credentials
    return None


def _names(registry: str) -> list[str]:
    if registry in _DOCKER_HUB:
        return [_OLD_DOCKER_HUB, *_DOCKER_HUB]
    return [registry, f"https://{registry}", f"https://{registry}/", f"http://{registry}"]


def _of_entry(file: Path, name: str, entry: Mapping[str, Any]) -> Credentials | None:
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        return Credentials(identity_token=token)
    written = entry.get("auth")
    if not isinstance(written, str) or not written:
        return None
    try:
        username, colon, password = base64.b64decode(written, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon:
        raise InvalidInput(
            f"`{file}` has an entry for `{name}` that is not valid", f"log in again to `{name}`"
        )
    return Credentials(username, password)


def _from_helper(helper: str, registry: str, variables: Mapping[str, str]) -> Credentials | None:
    if not _HELPER.fullmatch(helper):
        return None
    try:
        outcome = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=registry,
            capture_output=True,
            text=True,
            env=dict(variables),
            timeout=_HELPER_S,
        )
        answer = json.loads(outcome.stdout) if outcome.returncode == 0 else {}
        username, secret = str(answer["Username"]), str(answer["Secret"])
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None
    if username == _TOKEN_USER:
        return Credentials(identity_token=secret)
    return Credentials(username, secret)
