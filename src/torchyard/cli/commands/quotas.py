"""`yard quota …`: limits on how much of a workspace its users may use."""

from __future__ import annotations

from typing import Any

import click

from torchyard.base.errors import InvalidInput, did_you_mean
from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, common
from torchyard.cli.terminal import tables
from torchyard.client.times import duration
from torchyard.shared.sizes import size_text

group = noun("quota")

# The quota and the parser of its value, by the names that users may write.
_READ = {
    "nodes": ("nodes", amounts.number),
    "gpus": ("gpus", amounts.number),
    "cores": ("cores", amounts.number),
    "jobs": ("jobs", amounts.number),
    "run_time": ("run_time_s", amounts.seconds),
    "run_time_s": ("run_time_s", amounts.seconds),
    "storage": ("storage_bytes", amounts.size_bytes),
    "storage_bytes": ("storage_bytes", amounts.size_bytes),
}
_SHOWN = "nodes, gpus, cores, jobs, run_time, storage"


_COLUMNS: list[tables.Column] = [
    ("USER", lambda row: _who(row["user"])),
    ("QUOTA", lambda row: row["name"]),
    ("USED", lambda row: _amount(row["name"], row["used"])),
    ("LIMIT", lambda row: _amount(row["name"], row["most"])),
    ("SET BY", lambda row: row["set_by"]),
]
_REQUEST_COLUMNS: list[tables.Column] = [
    ("ID", lambda row: row["id"]),
    ("USER", lambda row: row["user"]),
    ("QUOTA", lambda row: row["name"]),
    ("REQUESTED", lambda row: _amount(row["name"], row["most"])),
    ("STATE", lambda row: row["state"]),
    ("CREATED", lambda row: tables.moment(row["asked_at"])),
    ("REASON", lambda row: row["reason"]),
    ("ANSWER", lambda row: row["answer"]),
]


@group.command("list")
@common
def list_limits(session: Session) -> None:
    """List quotas and their usage; there are none until an owner sets them.

    Contributors and owners see all quotas, other users those that apply to them.

    Example: yard quota list
    """
    tables.rows(session.form, session.client().quotas.list().raw, _COLUMNS)


@group.command("set")
@click.argument("limits", nargs=-1, required=True, metavar="NAME=NUMBER...")
@click.option("--user", default="", metavar="NAME", help="Set this user's quota.")
@click.option("--each-user", is_flag=True, help="Set the quota of each user without their own.")
@common
def set_limits(session: Session, limits: tuple[str, ...], user: str, each_user: bool) -> None:
    """Limit nodes, gpus, cores, concurrent jobs, run_time of a job, or storage.

    Without `--user` or `--each-user`, limit the workspace as a whole. `NAME=none` removes a quota.

    \b
    Example: yard quota set nodes=8 gpus=4
             yard quota set nodes=2 run_time=12h storage=50GB --each-user
             yard quota set nodes=none --user anna
    """
    if user and each_user:
        raise click.UsageError("'--user' and '--each-user' can't be combined.")
    new_limits = dict(_limit(text) for text in limits)
    client = session.client()
    remaining = client.quotas.set(new_limits, "*" if each_user else user)
    columns = [column for column in _COLUMNS if column[0] != "USED"]
    if not remaining and session.form.kind == "table":
        click.echo("There are no quotas left.", err=True)
        return
    tables.rows(session.form, remaining.raw, columns)


@group.command("request")
@click.argument("limit", metavar="NAME=NUMBER")
@click.option("--reason", default="", help="Reason, for the owners.")
@common
def request(session: Session, limit: str, reason: str) -> None:
    """Request a higher quota from the workspace's owners.

    Example: yard quota request nodes=4 --reason "the large model needs four"
    """
    name, new_limit = _limit(limit)
    if new_limit is None:
        raise InvalidInput(f"`{limit}` requests no amount", "write a number")
    made = session.client().quotas.request(name, new_limit, reason)
    owners = ", ".join(f"`{owner}`" for owner in made.owners)
    text = f"Sent request {made.id}; {owners} can answer it: `yard quota requests`"
    tables.one(session.form, made.raw, lambda: text)


@group.command("requests")
@common
def requests(session: Session) -> None:
    """List quota requests, newest first.

    Example: yard quota requests
    """
    tables.rows(session.form, session.client().quotas.requests().raw, _REQUEST_COLUMNS)


@group.command("approve")
@click.argument("request_id", metavar="ID")
@click.option("--answer", default="", help="Message to the user.")
@common
def approve(session: Session, request_id: str, answer: str) -> None:
    """Approve a quota request.

    Example: yard quota approve 1f3a9c20
    """
    _answer(session, request_id, True, answer)


@group.command("deny")
@click.argument("request_id", metavar="ID")
@click.option("--answer", default="", help="Message to the user.")
@common
def deny(session: Session, request_id: str, answer: str) -> None:
    """Deny a quota request.

    Example: yard quota deny 1f3a9c20 --answer "next week"
    """
    _answer(session, request_id, False, answer)


def _answer(session: Session, request_id: str, approve: bool, words: str) -> None:
    answered = session.client().quotas.answer(request_id, approve, words)
    amount = _amount(answered.name, answered.most)
    text = f"{answered.state.capitalize()}: `{answered.name}` {amount} for `{answered.user}`."
    tables.done(session.form, answered.raw, text)


def _limit(text: str) -> tuple[str, int | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"`{text}` is not a limit", "write `nodes=4`, or `nodes=none`")
    key = name.strip().lower().replace("-", "_")
    if key not in _READ:
        raise InvalidInput(
            f"there is no quota `{name}`",
            did_you_mean(key, _READ, f"one of: {_SHOWN}"),
        )
    quota, read = _READ[key]
    return quota, None if value.lower() == "none" else read(value)


def _who(user: str) -> str:
    return {"": "(all together)", "*": "(each)"}.get(user, user)


def _amount(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "storage_bytes":
        return size_text(value)
    return duration(value) if name == "run_time_s" else str(value)
