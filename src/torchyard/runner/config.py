"""The runner's configuration, `/etc/torchyard/runner.json`.

Owns: its keys, their checks, that only root may have written it.
Leaves: choosing an account to accounts.py.
Always: what a server sends changes nothing here.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path("/etc/torchyard/runner.json")
STATE = Path("/var/lib/torchyard-runner")
NODE_FOLDER = Path("/var/lib/torchyard-node")
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_MOST_ACCOUNTS = 10_000
# Members of these become root without a password, or read every disk, process or log.
DANGEROUS_GROUPS = frozenset(
    "root sudo wheel adm docker podman lxd incus libvirt disk kmem shadow systemd-journal".split()
)


class Refused(Exception):
    """The runner does not do it.

    Args:
        code: stable, for programs.
        hint: the next step.
    """

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class BuildLimits:
    """Of one build. `memory_mb` is three quarters of the machine's where it is 0."""

    memory_mb: int = 0
    processes: int = 4096
    minutes: int = 240

    @property
    def memory_bytes(self) -> int:
        if self.memory_mb:
            return self.memory_mb << 20
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4


@dataclass(frozen=True)
class Config:
    """What the owner of the machine has decided.

    `accounts` maps people to Unix accounts; `pool` are accounts for everybody else, in order.
    `build_users` run builds, one at a time each, within the `build_limits`. The node folder holds
    `scratch/`, `workers/` and `homes/`; `state` what only root reads. `environment` is added to
    what jobs get; `umask` and `open_files` hold for them.
    `folder_accounts` are accounts that people may name in datastores beside their own, and who may.
    """

    server_user: str
    accounts: dict[str, str] = field(default_factory=dict)
    pool: tuple[str, ...] = ()
    build_users: tuple[str, ...] = ()
    engine_user: str = ""
    node_folder: Path = NODE_FOLDER
    state: Path = STATE
    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)
    umask: int = 0o077
    open_files: int = 65536
    build_limits: BuildLimits = field(default_factory=BuildLimits)
    folder_accounts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def server_uid(self) -> int:
        return _user(self.server_user).pw_uid

    @property
    def scratch(self) -> Path:
        return self.node_folder / "scratch"

    @property
    def workers(self) -> Path:
        return self.node_folder / "workers"

    @property
    def builds(self) -> Path:
        return self.node_folder / "builds"

    @property
    def engines(self) -> Path:
        """The engine user's own: environments of engines, sessions of their heads."""
        return self.node_folder / "engines"

    @property
    def homes(self) -> Path:
        return self.node_folder / "homes"


def read(file: Path = FILE) -> Config:
    """
    Raises:
        Refused: it is missing, malformed, or others than root could have written it.
    """
    try:
        check_only_root_writes(file)
        body = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise _bad(f"`{file}` does not exist", "write it: see docs/guides/runner.md") from error
    except ValueError as error:
        raise _bad(f"`{file}` is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _bad(f"`{file}` is not a JSON object")
    keys = set(Config.__dataclass_fields__) - {"build_users"} | {"build_user"}
    for key in body:
        if key not in keys:
            raise _bad(
                f"`{file}` has the unknown key `{key}`", f"known keys: {', '.join(sorted(keys))}"
            )
    config = Config(
        server_user=_text(body, "server_user"),
        accounts=_texts(body, "accounts"),
        pool=_pool(body.get("pool")),
        build_users=_build_users(body.get("build_user")),
        engine_user=_text(body, "engine_user", ""),
        node_folder=_path(body, "node_folder", NODE_FOLDER),
        state=_path(body, "state", STATE),
        python=str(_path(body, "python", Path(sys.executable))),
        environment=_texts(body, "environment"),
        umask=_octal(_text(body, "umask", "077")),
        open_files=_number(body, "open_files", 65536),
        build_limits=_limits(body.get("build_limits")),
        folder_accounts=_people(body, "folder_accounts"),
    )
    if config.server_uid == 0:
        raise _bad("`server_user` is root", "run yard-server as a user of its own")
    others = {*config.build_users, *config.accounts.values(), *config.pool}
    if config.engine_user and config.engine_user in others:
        raise _bad(
            f"`engine_user` is `{config.engine_user}`, which runs builds or jobs, too",
            "create a user that runs engines alone",
        )
    return config


def check_only_root_writes(path: Path) -> None:
    """
    Raises:
        Refused: somebody else than root owns or may write the file, or a folder above it.
        FileNotFoundError: it does not exist.
    """
    real = Path(os.path.realpath(path))
    for ancestor in (real, *real.parents):
        status = os.lstat(ancestor)
        # In a folder with the sticky bit, nobody can replace what root owns.
        is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or (status.st_mode & _WRITABLE and not is_sticky):
            raise Refused(
                "unsafe_file",
                f"`{ancestor}` can be changed by others than root",
                f"type `chown root {ancestor} && chmod go-w {ancestor}`",
            )


def _build_users(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    return _pool(value, "build_user")


def _limits(value: Any) -> BuildLimits:
    if value is None:
        return BuildLimits()
    names = set(BuildLimits.__dataclass_fields__)
    if not isinstance(value, dict) or not set(value) <= names:
        raise _bad(f"`build_limits` is not an object of {', '.join(sorted(names))}")
    for name, limit in value.items():
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise _bad(f"`{name}` of `build_limits` is not a positive number")
    return BuildLimits(**value)


def _pool(value: Any, key: str = "pool") -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
        return tuple(value)[:_MOST_ACCOUNTS]
    if isinstance(value, dict) and set(value) == {"prefix", "count"}:
        prefix, count = value["prefix"], value["count"]
        if isinstance(prefix, str) and prefix and isinstance(count, int):
            return tuple(f"{prefix}{number}" for number in range(1, min(count, _MOST_ACCOUNTS) + 1))
    raise _bad(f'`{key}` is neither a list of accounts nor `{{"prefix": …, "count": …}}`')


def _text(body: dict[str, Any], key: str, default: str | None = None) -> str:
    value = body.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise _bad(f"`{key}` is missing or not a string")
    return value


def _texts(body: dict[str, Any], key: str) -> dict[str, str]:
    value = body.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _bad(f"`{key}` is not a mapping of names to texts")
    return value


def _people(body: dict[str, Any], key: str) -> dict[str, tuple[str, ...]]:
    value = body.get(key, {})
    if not isinstance(value, dict) or not all(
        isinstance(people, list) and all(isinstance(person, str) for person in people)
        for people in value.values()
    ):
        raise _bad(f"`{key}` is not a mapping of accounts to lists of people")
    return {account: tuple(people) for account, people in value.items()}


def _path(body: dict[str, Any], key: str, default: Path) -> Path:
    path = Path(_text(body, key, str(default)))
    if not path.is_absolute():
        raise _bad(f"`{key}` is not an absolute path")
    return path


def _octal(text: str) -> int:
    try:
        return int(text, 8) & 0o777
    except ValueError as error:
        raise _bad(f"`umask` is `{text}`, and not octal digits") from error


def _number(body: dict[str, Any], key: str, default: int) -> int:
    value = body.get(key, default)
    if not isinstance(value, int) or value < 64:
        raise _bad(f"`{key}` is not a number of 64 or more")
    return value


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise _bad(f"the user `{name}` does not exist", "create it with `useradd`") from error


def _bad(message: str, hint: str = "") -> Refused:
    return Refused("bad_configuration", message, hint)
