"""`yard login`, `logout`, `whoami`: which server commands use, and as which user.

Owns: prompting for a token, trying it, the verbs' messages.
Leaves: signing in with a browser to sign_in.py, saving the token to base/logins.py, settings that
override it to base/settings.py.
Always: a token is prompted for without echo, never passed as an argument, and saved only after the
server has accepted it; a login that fails changes nothing.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from torchyard.base import logins
from torchyard.base.errors import InvalidInput, NotAuthenticated, Unreachable
from torchyard.base.http import Transport
from torchyard.cli.commands import sign_in
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, warn
from torchyard.cli.terminal import browser, tables


@click.command("login", cls=Verb)
@click.argument("url", required=False)
@click.option(
    "--token-file",
    default="",
    metavar="FILE",
    help="Read the token from FILE; - is standard input.",
)
@click.option(
    "--ca-cert",
    default="",
    metavar="FILE",
    help="Trust this CA certificate (PEM).",
)
@click.option(
    "--no-browser",
    is_flag=True,
    help="Print the sign-in's address and ask for the code that it shows.",
)
@click.option(
    "--with-token", is_flag=True, help="Ask for a token, also where the server offers sign-in."
)
@common
def login(
    session: Session,
    url: str | None,
    token_file: str,
    ca_cert: str,
    no_browser: bool,
    with_token: bool,
) -> None:
    """Log in to the shared server at URL: with a browser if it offers that, or with a token.

    Its owners create tokens. Without URL, list the saved logins. Switching to a saved login needs
    no token. TORCHYARD_URL and TORCHYARD_TOKEN override the login.

    \b
    Example: yard login https://gpu-box:8766 --ca-cert team-ca.pem
             yard login https://gpu-box:8766 --token-file - < token.txt
    """
    home = session.settings.home
    saved = logins.read(home)
    if not url:
        _list(session, saved)
        return
    address = logins.url_of(url)
    before = saved.servers.get(address, logins.Login(address))
    trusted = str(Path(ca_cert).absolute()) if ca_cert else before.ca_cert
    way = _Way(token_file, no_browser, with_token)
    is_saved = bool(before.token) and not token_file and not with_token
    token = before.token if is_saved else _obtain_token(address, trusted, way)
    attempt = logins.Login(address, token, trusted)
    try:
        identity = _try(session, attempt)
    except NotAuthenticated:
        if not is_saved:
            raise
        attempt = dataclasses.replace(attempt, token=_obtain_token(address, trusted, way))
        identity = _try(session, attempt)
    logins.write(home, saved.with_login(dataclasses.replace(attempt, user=identity["user"])))
    if not address.startswith(("https://", *logins.LOOPBACK)):
        warn(f"`{address}` does not use TLS: the token is sent unencrypted")
    for name in ("TORCHYARD_URL", "TORCHYARD_TOKEN"):
        if _is_set(name):
            warn(f"{name} is set and overrides this login; unset it")
    body = {**identity, "server": address}
    role = identity["role"] or "no role yet"
    text = f"Logged in to {address} as {identity['user']}: {role} in `{identity['workspace']}`."
    tables.one(session.form, body, lambda: text)


@click.command("logout", cls=Verb)
@click.argument("url", required=False)
@click.option("--revoke", is_flag=True, help="Also revoke the token on the server.")
@common
def logout(session: Session, url: str | None, revoke: bool) -> None:
    """Log out of the server at URL, by default the current one, and delete its token here.

    Example: yard logout --revoke
    """
    home = session.settings.home
    saved = logins.read(home)
    address = logins.url_of(url) if url and url not in saved.servers else url or saved.current
    login = saved.servers.get(address)
    if login is None:
        raise InvalidInput(
            f"there is no login to `{address}`" if address else "you are not logged in",
            "list the saved logins with `yard login`",
        )
    if revoke:
        _revoke(login)
    logins.write(home, saved.without(address))
    body = {"server": address, "revoked": revoke}
    tables.done(session.form, body, f"Logged out of {address}.")


@click.command("whoami", cls=Verb)
@common
def whoami(session: Session) -> None:
    """Show your user name, server, workspace and role, and when your token expires.

    Example: yard whoami
    """
    client = session.client()
    identity = {**client.users.me().raw, "server": client.transport.url}
    ends = tables.moment(identity["expires_at"]) or "never"
    rows = [
        ("Name", identity["user"]),
        ("Server", identity["server"]),
        ("Workspace", identity["workspace"]),
        ("Role", identity["role"] or "none: ask an owner, see `yard user list`"),
        ("Job", identity["job"]),
        ("Token", identity["token"]),
        ("Token expires", ends),
    ]
    tables.one(session.form, identity, lambda: tables.fields(rows))


def _list(session: Session, saved: logins.Logins) -> None:
    rows = [
        {"server": url, "user": login.user, "current": url == saved.current}
        for url, login in saved.servers.items()
    ]
    columns: list[tables.Column] = [
        ("SERVER", lambda row: row["server"]),
        ("USER", lambda row: row["user"]),
        ("CURRENT", lambda row: "yes" if row["current"] else ""),
    ]
    tables.rows(session.form, rows, columns)


@dataclasses.dataclass(frozen=True)
class _Way:
    """How a login gets its token."""

    token_file: str
    no_browser: bool
    with_token: bool


def _obtain_token(address: str, ca_cert: str, way: _Way) -> str:
    if not way.token_file and not way.with_token:
        transport = Transport(address, "", ca_cert=ca_cert)
        token = sign_in.try_sign_in(transport, browser.is_here() and not way.no_browser)
        if token is not None:
            return token
    return _read_token(address, way.token_file)


def _read_token(address: str, token_file: str) -> str:
    if token_file == "-":
        token = sys.stdin.read().strip()
    elif token_file:
        try:
            token = Path(token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not a text file"
            raise InvalidInput(
                f"`{token_file}` can't be read ({reason})", "check the path and its permissions"
            ) from error
    elif sys.stdin.isatty():
        token = str(click.prompt(f"Token for {address}", hide_input=True, err=True)).strip()
    else:
        raise InvalidInput(
            "there is no terminal to ask for a token at", "use `--token-file FILE`, or - for stdin"
        )
    return logins.checked_token(token)


def _try(session: Session, login: logins.Login) -> dict[str, Any]:
    """The server's answer to who this token belongs to."""
    from torchyard.client.connection import default_workspace

    transport = Transport(login.url, login.token, ca_cert=login.ca_cert)
    try:
        workspace = session.workspace or default_workspace(session.settings, Path.cwd())
        identity: dict[str, Any] = transport.get("/v1/whoami", {"workspace": workspace})
        if not isinstance(identity, dict) or "user" not in identity:
            raise Unreachable(f"`{login.url}` is not a torchyard server", "check the address")
        return identity
    finally:
        transport.close()


def _revoke(login: logins.Login) -> None:
    transport = Transport(login.url, login.token, ca_cert=login.ca_cert)
    try:
        me = transport.get("/v1/whoami")
        transport.delete(f"/v1/users/{me['user']}/tokens/{me['token']}")
    except NotAuthenticated:
        pass  # it was no longer valid
    finally:
        transport.close()


def _is_set(name: str) -> bool:
    from torchyard.base import settings

    return settings.is_set(name)
