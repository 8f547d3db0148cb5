"""Which Unix account a person's jobs run as.

Owns: the mapping, giving out accounts of the pool, becoming an account.
Leaves: what is done as the account to launches.py and scratch.py.
Always: never root, never the server's user, never an account that the configuration does not name;
an account of the pool belongs to one person for good, also over restarts.
"""

from __future__ import annotations

import ctypes
import grp
import json
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.runner.config import DANGEROUS_GROUPS, Config, Refused
from torchyard.shared import locks

_REMEMBERED = "accounts.json"
_PERSON = re.compile(r"[^\0-\x1f\x7f]{1,200}")
_PR_SET_NO_NEW_PRIVS = 38
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Account:
    """A Unix account, with the groups that its jobs get."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def of_person(config: Config, person: str) -> Account:
    """
    Raises:
        Refused: the person has no account and none is free, or theirs may not be used.
    """
    if not _PERSON.fullmatch(person):
        raise Refused("bad_request", "the person has no valid name")
    name = config.accounts.get(person) or _of_pool(config, person)
    if name in config.build_users:
        raise Refused("account_refused", f"`{name}` is a build user, and runs no jobs")
    if name == config.engine_user:
        raise Refused("account_refused", f"`{name}` is the engine user, and runs no jobs")
    return get_by_name(config, name)


def engine(config: Config) -> Account:
    """
    Raises:
        Refused: the configuration names none, or it may not be used.
    """
    if not config.engine_user:
        raise Refused(
            "no_engine_user",
            "the runner has no engine user, and nobody else may run Ray",
            "name one as `engine_user` in /etc/torchyard/runner.json, then restart "
            "torchyard-runner",
        )
    return get_by_name(config, config.engine_user)


def for_folders(config: Config, person: str, name: str) -> Account:
    """The account `name` for reading and writing a folder that the person named.

    Raises:
        Refused: it is neither their own nor one that they may use.
    """
    is_let = person in config.folder_accounts.get(name, ())
    if not is_let and of_person(config, person).name != name:
        raise Refused(
            "account_not_yours",
            f"`{person}` may not use the Unix account `{name}`",
            f"name your own account, or ask the machine's administrator to list `{person}` under "
            "`folder_accounts` in /etc/torchyard/runner.json",
        )
    if name in config.build_users:
        raise Refused("account_refused", f"`{name}` is a build user, and opens no folders")
    if name == config.engine_user:
        raise Refused("account_refused", f"`{name}` is the engine user, and opens no folders")
    return get_by_name(config, name)


def get_by_name(config: Config, name: str) -> Account:
    """An account that the configuration names.

    Raises:
        Refused: it may not run jobs.
    """
    special = (*config.folder_accounts, *config.build_users, config.engine_user)
    allowed = {*config.accounts.values(), *config.pool, *special}
    if not name or name not in allowed:
        raise Refused(
            "account_refused", f"`{name}` is not an account of the runner's configuration"
        )
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise Refused(
            "no_account",
            f"the Unix account `{name}` does not exist",
            f"create it with `useradd --system --user-group --shell /usr/sbin/nologin {name}`",
        ) from error
    server = pwd.getpwnam(config.server_user)
    if entry.pw_uid in (0, server.pw_uid) or entry.pw_gid in (0, server.pw_gid):
        raise Refused(
            "account_refused",
            f"`{name}` is root, the server's user, or of one of their groups",
            "map the person to another account in /etc/torchyard/runner.json",
        )
    dangerous = {0, server.pw_gid, *map(_group, DANGEROUS_GROUPS)}
    groups = tuple(g for g in os.getgrouplist(name, entry.pw_gid) if g not in dangerous)
    return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)


def remembered(config: Config) -> dict[str, str]:
    """The accounts of the pool that were given out, by person."""
    try:
        return dict(json.loads((config.state / _REMEMBERED).read_text()))
    except FileNotFoundError:
        return {}


def become(account: Account) -> None:
    """Be the account in this process, with no way back, and with no way to more rights.

    Raises:
        OSError: it could not be done; nothing may go on then.
    """
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs can't be set")
    if 0 in os.getresuid() or 0 in os.getresgid() or 0 in os.getgroups():
        raise OSError("some of root's rights are left")


def _of_pool(config: Config, person: str) -> str:
    with locks.hold(config.state / f"{_REMEMBERED}.lock"):
        accounts = remembered(config)
        name = accounts.get(person, "")
        if name in config.pool:
            return name
        # Also what the owner mapped by hand is somebody's, as what the pool no longer names.
        taken = {*accounts.values(), *config.accounts.values(), *config.build_users}
        free = (account for account in config.pool if account not in taken)
        name = next(free, "")
        if not name:
            raise Refused(
                "no_account",
                f"no Unix account is left for `{person}`",
                "map the person with `yard-runner map`, or add accounts to `pool` in "
                "/etc/torchyard/runner.json",
            )
        _write_private(config, {**accounts, person: name})
        return name


def _write_private(config: Config, accounts: Mapping[str, str]) -> None:
    file = config.state / _REMEMBERED
    draft = file.with_name(f"{_REMEMBERED}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        json.dump(accounts, opened, indent=1, sort_keys=True)
        opened.flush()
        os.fsync(descriptor)
    draft.replace(file)


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return 0
