"""`yard user …`: the users of a server, their roles and tokens."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.base.logins import LOOPBACK
from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.group import Noun, noun
from torchyard.cli.parsing.options import Session, common, confirm, name_argument
from torchyard.cli.terminal import tables
from torchyard.shared.plurals import plural

group = noun("user")
token_group = Noun(
    "token",
    help="Create, list and revoke login tokens.\n\nExample: yard user token create anna",
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
    ("CREATED", lambda token: tables.moment(token["created_at"])),
    ("EXPIRES", lambda token: tables.moment(token["expires_at"]) or "never"),
    ("LAST USED", lambda token: tables.moment(token["last_used_at"])),
]


@group.command("create")
@name_argument("user")
@click.option(
    "--role", default="data-scientist", help=f"Role: {_ROLES}, or none.", show_default=True
)
@click.option("--all-workspaces", is_flag=True, help="Grant the role in every workspace.")
@click.option("--token-name", default="first", show_default=True, help="Token name.")
@click.option(
    "--expires", default=_LIFE, show_default=True, help="Lifetime such as `90d`, a date, or never."
)
@click.option("--no-token", is_flag=True, help="Don't create a token.")
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
    """Create a user with a role in this workspace and print their first token.

    Example: yard user create anna --role data-scientist -w vision
    """
    expires_at = amounts.later(expires)
    client = session.client()
    workspace = "" if all_workspaces else client.workspace
    made = client.users.create(name, _role(role), workspace)
    if no_token:
        tables.one(session.form, made.raw, lambda: _page(made.raw))
        return
    try:
        token = client.users.create_token(name, token_name, expires_at)
    except TorchyardError:
        # A user without a token can't log in, and would block the next attempt.
        with suppress(TorchyardError):
            client.users.remove(name)
        raise
    result = {**made.raw, "token": token.token, "expires_at": token.raw["expires_at"]}
    tables.one(
        session.form, result, lambda: f"{_page(made.raw)}\n\n{_token_page(client, token.raw)}"
    )


@group.command("list")
@common
def list_users(session: Session) -> None:
    """List users; owners see all, others those they share a workspace with.

    Example: yard user list
    """
    tables.rows(session.form, session.client().users.list().raw, _COLUMNS)


@group.command("show")
@name_argument("user")
@common
def show(session: Session, name: str) -> None:
    """Show a user.

    Example: yard user show anna
    """
    person = session.client().users.get(name)
    tables.one(session.form, person.raw, lambda: _page(person.raw))


@group.command("role")
@click.argument("name")
@click.argument("role")
@click.option("--all-workspaces", is_flag=True, help="Set the role in every workspace.")
@common
def set_role(session: Session, name: str, role: str, all_workspaces: bool) -> None:
    """Set a user's role in this workspace, or remove it with `none`.

    \b
    reader          sees everything in the workspace
    data-scientist  also submits jobs, registers data and models
    contributor     also creates compute, and changes other users' jobs and assets
    owner           also sets roles and quotas

    Example: yard user role anna contributor -w vision
    """
    client = session.client()
    workspace = "" if all_workspaces else client.workspace
    person = client.users.set_role(name, _role(role), workspace)
    tables.one(session.form, person.raw, lambda: _page(person.raw))


@group.command("remove")
@name_argument("user")
@click.option("--cancel-jobs", is_flag=True, hidden=True, expose_value=False)
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@common
def remove(session: Session, name: str, yes: bool) -> None:
    """Remove a user's roles and tokens, and stop what runs for them.

    Everything that they made stays. Who wants to go on with a deployment or a schedule of theirs
    takes it over: `--take-over`.

    Example: yard user remove anna --yes
    """
    client = session.client()
    client.users.get(name)
    confirm(f"Remove `{name}`?", yes)
    result = client.users.remove(name)
    jobs = len(result.canceled)
    text = f"`{name}` is removed" + (f", and {jobs} of their jobs canceled." if jobs else ".")
    tables.done(session.form, result.raw, text)


@group.command("link")
@name_argument("user")
@click.argument("subject")
@common
def link(session: Session, name: str, subject: str) -> None:
    """Let an account at the sign-in provider sign in as this user.

    SUBJECT is the account's `sub` there. A person whose account is not linked is shown it when
    they sign in; make sure that it is they who tell you.

    Example: yard user link anna 3f1c9a52-77d0-4a0e-9a55-0f6f2f0b7e11
    """
    session.client().users.link(name, subject)
    text = f"`{name}` can sign in with this account."
    tables.done(session.form, {"user": name, "subject": subject}, text)


@group.command("unlink")
@name_argument("user")
@common
def unlink(session: Session, name: str) -> None:
    """Release a user's account at the sign-in provider, and end their sign-ins.

    For an account that was made again there; `yard user link` names the new one.

    Example: yard user unlink anna
    """
    count = session.client().users.unlink(name)
    text = f"`{name}` is linked to no account." if count else f"`{name}` was not linked."
    tables.done(session.form, {"user": name, "unlinked": count}, text)


@token_group.command("create")
@name_argument("user")
@click.option("--token-name", default="", help="Token name. Default: the date.")
@click.option(
    "--expires", default=_LIFE, show_default=True, help="Lifetime such as `90d`, a date, or never."
)
@common
def create_token(session: Session, name: str, token_name: str, expires: str) -> None:
    """Create a token of the user NAME; its text is printed only this once.

    Example: yard user token create anna --token-name laptop --expires 90d
    """
    from datetime import datetime

    expires_at = amounts.later(expires)
    client = session.client()
    token_name = token_name or f"{datetime.now():%Y-%m-%d}"
    made = client.users.create_token(name, token_name, expires_at)
    tables.one(session.form, made.raw, lambda: _token_page(client, made.raw))


@token_group.command("list")
@name_argument("user")
@common
def list_tokens(session: Session, name: str) -> None:
    """List a user's tokens, and when each was last used.

    Example: yard user token list anna
    """
    tables.rows(session.form, session.client().users.tokens(name).raw, _TOKEN_COLUMNS)


@token_group.command("rotate")
@click.argument("name")
@click.argument("token")
@click.option("--expires", default="", help="Lifetime such as `90d`, a date, or never.")
@common
def rotate(session: Session, name: str, token: str, expires: str) -> None:
    """Replace a token: print a new text, and refuse the old one from now on.

    Without --expires the new one lasts as long as the old one did.

    Example: yard user token rotate anna laptop
    """
    client = session.client()
    made = client.users.rotate_token(name, token, amounts.later(expires) if expires else None)
    tables.one(session.form, made.raw, lambda: _token_page(client, made.raw))


@token_group.command("revoke")
@click.argument("name")
@click.argument("token", required=False)
@click.option("--all", "everything", is_flag=True, help="Revoke all of the user's tokens.")
@common
def revoke(session: Session, name: str, token: str | None, everything: bool) -> None:
    """Revoke a token immediately, or all of a user's tokens and sign-ins.

    \b
    Example: yard user token revoke anna laptop
             yard user token revoke anna --all
    """
    if everything == (token is not None):
        raise InvalidInput(
            "name one token, or write `--all`", f"list them with `yard user token list {name}`"
        )
    users = session.client().users
    if token is not None:
        users.revoke_token(name, token)
        result: dict[str, Any] = {"user": name, "token": token, "revoked": True}
        tables.done(session.form, result, f"Token `{token}` of `{name}` is revoked.")
        return
    revoked = users.revoke_all_tokens(name)
    count = f"{len(revoked)} {plural('token', len(revoked))}"
    result = {"user": name, "revoked": list(revoked)}
    tables.done(session.form, result, f"{count} of `{name}` revoked.")


def _role(text: str) -> str | None:
    return None if text.lower() == "none" else text


def _roles(person: dict[str, Any]) -> str:
    roles = person["roles"]
    return ", ".join(f"{role} ({workspace})" for workspace, role in roles.items()) or "none"


def _page(person: dict[str, Any]) -> str:
    rows = [
        ("Name", person["name"]),
        ("Roles", _roles(person)),
        ("Since", tables.moment(person["created_at"])),
    ]
    return tables.fields(rows)


def _token_page(client: Any, token: dict[str, Any]) -> str:
    ends = tables.moment(token["expires_at"]) or "never"
    # Who asks from elsewhere has an address that works; this machine's own does not for others.
    url = client.transport.url
    if url.startswith(LOOPBACK):
        url = token.get("url") or url
    return (
        f"Token `{token['name']}`, valid until {ends}; it is shown only this once:\n\n"
        f"{token['token']}\n\n"
        f"They log in with: yard login {url}"
    )
