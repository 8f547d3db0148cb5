"""`yard user …`: people of a server, their roles and tokens."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.group import Noun, noun
from torchyard.cli.parsing.options import Session, common, confirm, named
from torchyard.cli.terminal import tables

group = noun("user")
token_group = Noun(
    "token",
    help="Tokens, with which people log in.\n\nExample: yard user token create anna",
    no_args_is_help=False,
)
group.add_command(token_group)

_ROLES = "reader, data-scientist, contributor or owner"
_LIFE = "365d"
_COLUMNS: list[tables.Column] = [
    ("NAME", lambda person: person["name"]),
    ("ROLES", lambda person: _roles(person)),
    ("SINCE", lambda person: tables.moment(person["created_at"])),
]
_TOKEN_COLUMNS: list[tables.Column] = [
    ("NAME", lambda token: token["name"]),
    ("MADE", lambda token: tables.moment(token["created_at"])),
    ("ENDS", lambda token: tables.moment(token["expires_at"]) or "never"),
    ("LAST USED", lambda token: tables.moment(token["last_used_at"])),
]


@group.command("create")
@named("person")
@click.option("--role", default="data-scientist", help=f"{_ROLES}, or none.", show_default=True)
@click.option("--all-workspaces", is_flag=True, help="The role is for every workspace.")
@click.option("--token-name", default="first", show_default=True, help="What the token is called.")
@click.option("--expires", default=_LIFE, show_default=True, help="`90d`, a date, or never.")
@click.option("--no-token", is_flag=True, help="Make none; see `yard user token create`.")
@common
def create(
    session: Session,
    name: str,
    role: str,
    all_workspaces: bool,
    token_name: str,
    expires: str,
    no_token: bool,
) -> None:
    """Let somebody in, with a role in this workspace; prints their first token.

    Example: yard user create anna --role data-scientist -w vision
    """
    expires_at = amounts.later(expires)
    client = session.client()
    place = "" if all_workspaces else client.workspace
    made = client.users.create(name, _role(role), place)
    if no_token:
        tables.one(session.form, made.raw, lambda: _page(made.raw))
        return
    try:
        token = client.users.create_token(name, token_name, expires_at)
    except TorchyardError:
        # Who is let in without a token can't come, and is in the way of the next try.
        with suppress(TorchyardError):
            client.users.remove(name)
        raise
    result = {**made.raw, "token": token.token, "expires_at": token.raw["expires_at"]}
    tables.one(session.form, result, lambda: f"{_page(made.raw)}\n\n{_told(client, token.raw)}")


@group.command("list")
@common
def list_people(session: Session) -> None:
    """List people; owners see all, others those whom they share a workspace with.

    Example: yard user list
    """
    tables.rows(session.form, session.client().users.list().raw, _COLUMNS)


@group.command("show")
@named("person")
@common
def show(session: Session, name: str) -> None:
    """Show one person.

    Example: yard user show anna
    """
    person = session.client().users.get(name)
    tables.one(session.form, person.raw, lambda: _page(person.raw))


@group.command("role")
@click.argument("name")
@click.argument("role")
@click.option("--all-workspaces", is_flag=True, help="For every workspace.")
@common
def set_role(session: Session, name: str, role: str, all_workspaces: bool) -> None:
    """Make NAME a reader, data-scientist, contributor or owner here; `none` ends it.

    \b
    reader          sees everything in the workspace
    data-scientist  besides submits jobs, registers data and models
    contributor     besides creates compute, and changes what is another's
    owner           besides gives roles and quotas

    Example: yard user role anna contributor -w vision
    """
    client = session.client()
    place = "" if all_workspaces else client.workspace
    person = client.users.set_role(name, _role(role), place)
    tables.one(session.form, person.raw, lambda: _page(person.raw))


@group.command("remove")
@named("person")
@click.option("--cancel-jobs", is_flag=True, help="Cancel their jobs; else they run on.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@common
def remove(session: Session, name: str, cancel_jobs: bool, yes: bool) -> None:
    """Take every role and token of a person away; what they made stays.

    Example: yard user remove anna --cancel-jobs --yes
    """
    client = session.client()
    client.users.get(name)
    confirm(f"Remove `{name}`?", yes)
    result = client.users.remove(name, cancel_jobs)
    jobs = len(result.canceled)
    text = f"`{name}` is removed" + (f", and {jobs} of their jobs canceled." if jobs else ".")
    tables.done(session.form, result.raw, text)


@token_group.command("create")
@named("person")
@click.option("--token-name", default="", help="What it is called; by default the date.")
@click.option("--expires", default=_LIFE, show_default=True, help="`90d`, a date, or never.")
@common
def create_token(session: Session, name: str, token_name: str, expires: str) -> None:
    """Make a token; its text is printed now and never again.

    Example: yard user token create anna --token-name laptop --expires 90d
    """
    from datetime import datetime

    expires_at = amounts.later(expires)
    client = session.client()
    token_name = token_name or f"{datetime.now():%Y-%m-%d}"
    made = client.users.create_token(name, token_name, expires_at)
    tables.one(session.form, made.raw, lambda: _told(client, made.raw))


@token_group.command("list")
@named("person")
@common
def list_tokens(session: Session, name: str) -> None:
    """List a person's tokens, and when each was used last.

    Example: yard user token list anna
    """
    tables.rows(session.form, session.client().users.tokens(name).raw, _TOKEN_COLUMNS)


@token_group.command("revoke")
@click.argument("name")
@click.argument("token")
@common
def revoke(session: Session, name: str, token: str) -> None:
    """End a token at once.

    Example: yard user token revoke anna laptop
    """
    session.client().users.revoke_token(name, token)
    result = {"user": name, "token": token, "revoked": True}
    tables.done(session.form, result, f"The token `{token}` of `{name}` is good no more.")


def _role(text: str) -> str | None:
    return None if text.lower() == "none" else text


def _roles(person: dict[str, Any]) -> str:
    held = person["roles"]
    return ", ".join(f"{role} ({place})" for place, role in held.items()) or "none"


def _page(person: dict[str, Any]) -> str:
    rows = [
        ("Name", person["name"]),
        ("Roles", _roles(person)),
        ("Since", tables.moment(person["created_at"])),
    ]
    return tables.fields(rows)


def _told(client: Any, token: dict[str, Any]) -> str:
    ends = tables.moment(token["expires_at"]) or "never"
    return (
        f"Token `{token['name']}`, good until {ends}; it is told this once:\n\n"
        f"{token['token']}\n\n"
        f"They log in with: yard login {client.transport.url}"
    )
