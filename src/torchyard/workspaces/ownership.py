"""Who may change what belongs to somebody: one table, and one refusal.

Owns: the rules by noun and operation, asking them, taking something over by a word of its own.
Leaves: what a request may do at all to permissions.py, whether an owner may still run something to
rights.py; calling it to the actions of each noun.
Always: what a person made is theirs to change; what nobody is known to have made is as another's;
nothing changes its owner but a take-over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from torchyard.base.errors import Forbidden, InvalidSpec
from torchyard.workspaces import people_store as store
from torchyard.workspaces.types import Role

TAKE_OVER = "take_over"
_OWN = "torchyard"
_MUST_TAKE_OVER = "must_take_over"
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")


@dataclass(frozen=True)
class Rule:
    """Who may do something to another's: the role `others`, and those above it.

    `operation` goes on after `to`; `takes_over` says that it makes the person the owner, whose
    account and rights it runs with from then on.
    """

    noun: str
    operation: str
    others: Role = Role.CONTRIBUTOR
    takes_over: bool = False


JOB = Rule("job, sweep, run", "change, cancel, archive or delete it, or log to it")
JOB_ENTER = Rule("job, sweep, run", "enter it, or open its services", Role.OWNER)
INSTANCE = Rule("compute instance", "change, start, stop or delete it", Role.OWNER)
INSTANCE_CODE = Rule("compute instance", "change its environment or cluster", Role.OWNER, True)
ENDPOINT = Rule("online endpoint", "change or delete it, or replace its keys")
ENDPOINT_OWNER = Rule("online endpoint", "take it over: its keys are replaced", takes_over=True)
DEPLOYMENT = Rule("online deployment", "change its number of instances, or delete it")
DEPLOYMENT_CODE = Rule("online deployment", "change what its instances run", takes_over=True)
BATCH_ENDPOINT = Rule("batch endpoint", "change or delete it")
BATCH_DEPLOYMENT = Rule("batch deployment", "change its settings, or delete it")
BATCH_DEPLOYMENT_CODE = Rule("batch deployment", "change what its jobs run", takes_over=True)
RELEASE_SCHEDULE = Rule("release schedule", "end it")
RELEASE_SCHEDULE_CODE = Rule("release schedule", "replace it", takes_over=True)
DATASTORE = Rule("datastore", "replace, describe or delete it")
CONNECTION = Rule("connection", "replace, change or delete it")
ADVISORIES = Rule("advisories", "replace them")
ASSET_ADD = Rule("data, model, environment, component", "add a version to its name")
ASSET_CHANGE = Rule("data, model, environment, component", "describe, tag or archive a version")
ASSET_DELETE = Rule("data, model, environment, component", "delete a version")
MODEL_NAME = Rule("registered model", "rename or describe it, or set its aliases and stages")

RULES = (
    JOB, JOB_ENTER, INSTANCE, INSTANCE_CODE, ENDPOINT, ENDPOINT_OWNER, DEPLOYMENT, DEPLOYMENT_CODE,
    BATCH_ENDPOINT, BATCH_DEPLOYMENT, BATCH_DEPLOYMENT_CODE, RELEASE_SCHEDULE,
    RELEASE_SCHEDULE_CODE, DATASTORE, CONNECTION, ADVISORIES, ASSET_ADD, ASSET_CHANGE, ASSET_DELETE,
    MODEL_NAME,
)  # fmt: skip
"""What the guide's table is made from; see tools/ownership_page.py."""


def refuse(
    connection: Connection, rule: Rule, workspace: str, user: str, owner: str, subject: str
) -> None:
    """
    Args:
        owner: whose it is; empty when nobody is known to have made it.
        subject: what it is, for the message.

    Raises:
        Forbidden: it is another's, and the person's role does not suffice for the rule.
    """
    if user == owner:
        return
    roles = store.roles_of(connection, user)
    granted = [roles[scope] for scope in ("", workspace) if scope in roles]
    role = max(granted, key=lambda each: each.rank, default=None)
    if role is None or role.rank < rule.others.rank:
        raise refusal(rule, user, role, owner, subject)


def refusal(rule: Rule, user: str, role: Role | None, owner: str, subject: str) -> Forbidden:
    has = "has no role" if role is None else f"is {with_article(role)}"
    whose = f"belongs to `{owner}`" if owner else "belongs to nobody who is known"
    asked = f"`{owner}`, or " if owner else ""
    return Forbidden(
        f"{subject} {whose}; `{user}` {has}, and the role `{rule.others.value}` is required to "
        f"{rule.operation}",
        f"ask {asked}{with_article(rule.others)} of the workspace",
    )


def owner_after(
    connection: Connection,
    rule: Rule,
    workspace: str,
    user: str,
    owner: str,
    subject: str,
    *,
    is_asked: bool,
    is_needed: bool,
) -> str:
    """Whose something is once a person has changed it.

    Args:
        rule: of the take-over.
        is_asked: the request says that the person takes it over.
        is_needed: the change is one of what runs as the owner.

    Raises:
        Forbidden: it is another's, and the take-over is needed and not asked for, or not allowed.
    """
    if user == owner or not (is_asked or is_needed):
        return owner
    refuse(connection, rule, workspace, user, owner, subject)
    if is_asked:
        return user
    raise Forbidden(
        f"{subject} belongs to `{owner}` and runs with their account and rights; who wants to "
        f"{rule.operation} takes it over",
        f"with `--take-over` (`{_OWN}: {{{TAKE_OVER}: true}}` in a file, `{_OWN}.{TAKE_OVER}` as a "
        f"tag or property) it belongs to `{user}`, and all of it, whoever wrote it, runs with the "
        f"account and rights of `{user}`",
        code=_MUST_TAKE_OVER,
    )


def without_take_over(document: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """A document without the word that takes over what it names, and whether it was there.

    It stands as `take_over` below `torchyard:`, or as a tag or property `torchyard.take_over`.

    Raises:
        InvalidSpec: it is neither true nor false.
    """
    rest = dict(document)
    is_asked = False
    for section, key in ((_OWN, TAKE_OVER), *((each, f"{_OWN}.{TAKE_OVER}") for each in _TEXTS)):
        values = rest.get(section)
        if not isinstance(values, Mapping) or key not in values:
            continue
        is_asked |= _is_true(values[key], (section, key))
        rest[section] = {name: value for name, value in values.items() if name != key}
        if section == _OWN and not rest[section]:
            del rest[section]
    return rest, is_asked


_TEXTS = ("properties", "tags")


def _is_true(value: Any, at: tuple[str, str]) -> bool:
    word = str(value).strip().lower()
    if value is None or word in _FALSE:
        return False
    if word in _TRUE:
        return True
    raise InvalidSpec(f"`{at[1]}` is `{word[:50]}`", "use true or false", at=at)


class Assets:
    """The rules of versions, as `assets/versioned_assets.py` asks them."""

    @staticmethod
    def refuse_adding(
        connection: Connection, workspace: str, user: str, owner: str, subject: str
    ) -> None:
        refuse(connection, ASSET_ADD, workspace, user, owner, subject)

    @staticmethod
    def refuse_changing(
        connection: Connection, workspace: str, user: str, owner: str, subject: str
    ) -> None:
        refuse(connection, ASSET_CHANGE, workspace, user, owner, subject)


def with_article(role: Role) -> str:
    return f"an {role.value}" if role is Role.OWNER else f"a {role.value}"
