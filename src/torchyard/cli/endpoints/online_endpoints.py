"""`yard online-endpoint …`, with the verbs and options of `az ml online-endpoint`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.base.terminal_text import plain
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    changes_from,
    common,
    confirm,
    document_from,
    filed,
    name_argument,
    tagged,
    takes_over,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.endpoints.online_endpoints import OnlineEndpoint

group = noun("online-endpoint")

CHANGEABLE = (
    "traffic", "mirror_traffic", "tags", "properties", "description", "auth_mode",
    "identity", "public_network_access",
)  # fmt: skip
_HIDDEN = ("notices", "$schema", "changed_at")
_COLUMNS: list[tables.Column] = [
    ("NAME", lambda endpoint: endpoint["name"]),
    ("STATE", lambda endpoint: endpoint["provisioning_state"]),
    ("AUTH", lambda endpoint: endpoint["auth_mode"]),
    ("TRAFFIC", lambda endpoint: _shares(endpoint["traffic"])),
    ("OWNER", lambda endpoint: endpoint["owner"]),
    ("CREATED", lambda endpoint: tables.moment(endpoint["created_at"])),
]
NOT_HERE = "endpoints run on the server's machines, not in a Docker of this one"


def refuse_local(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """`--local` of az starts Docker on the client.

    Raises:
        InvalidInput: it was given.
    """
    if value:
        raise InvalidInput(f"`--local` is not served: {NOT_HERE}", "leave it out")


def without_local(command: Any) -> Any:
    """Refuse `--local` by name."""
    return click.option(
        "--local", is_flag=True, hidden=True, expose_value=False, callback=refuse_local
    )(command)


@group.command("create")
@click.option("-n", "--name", default=None, help="Endpoint name.")
@click.option("--auth-mode", default=None, help="key, aml_token or aad_token. Default: key.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@accepts("--no-wait")
@without_local
@common
@filed("endpoint")
def create(session: Session, document: Document, tags: tuple[str, ...], **options: Any) -> None:
    """Create an online endpoint; deployments come next.

    Example: yard online-endpoint create -f endpoint.yml
    """
    document.fill({**options, "tags": tagged(tags)})
    try:
        endpoint = session.client().online_endpoints.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    show_one(session, endpoint)


@group.command("update")
@name_argument("endpoint", "online_endpoints")
@click.option("-f", "--file", default="", metavar="FILE", help="YAML file of the endpoint.")
@click.option("--set", "assignments", multiple=True, metavar="A.B=VALUE", help="Set a key.")
@click.option("--traffic", default=None, metavar="SHARES", help='Traffic, as "blue=90 green=10".')
@click.option("--mirror-traffic", default=None, metavar="SHARES", help='Copies, as "green=10".')
@click.option("--auth-mode", default=None, help="key, aml_token or aad_token.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@takes_over
@accepts("--no-wait")
@without_local
@common
def update(
    session: Session,
    name: str,
    file: str,
    assignments: tuple[str, ...],
    traffic: str | None,
    mirror_traffic: str | None,
    tags: tuple[str, ...],
    take_over: bool,
    **options: Any,
) -> None:
    """Change an endpoint's traffic, tags, description or auth_mode.

    Example: yard online-endpoint update -n digits --traffic "blue=90 green=10"
    """
    document = document_from(file, ())
    for key in ("name", "$schema"):
        document.value.pop(key, None)
    shares = {
        "traffic": read_shares(traffic, "--traffic"),
        "mirror_traffic": read_shares(mirror_traffic, "--mirror-traffic"),
    }
    endpoints = session.client().online_endpoints
    options |= {**shares, "tags": tagged(tags)}
    before = endpoints.get(name).raw
    changes = changes_from(assignments, options, CHANGEABLE, document, before, take_over)
    try:
        show_one(session, endpoints.update(name, changes))
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__


@group.command("show")
@name_argument("endpoint", "online_endpoints")
@without_local
@common
def show(session: Session, name: str) -> None:
    """Show an endpoint: its address, traffic and state.

    Example: yard online-endpoint show -n digits --query scoring_uri
    """
    show_one(session, session.client().online_endpoints.get(name))


@group.command("list")
@without_local
@common
def list_endpoints(session: Session) -> None:
    """List the workspace's online endpoints.

    Example: yard online-endpoint list
    """
    tables.rows(session.form, session.client().online_endpoints.list().raw, _COLUMNS)


@group.command("delete")
@name_argument("endpoint", "online_endpoints")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@click.option("--no-wait", is_flag=True, help="Return before it is gone.")
@without_local
@common
def delete(session: Session, name: str, yes: bool, no_wait: bool) -> None:
    """Delete an endpoint with all of its deployments.

    Example: yard online-endpoint delete -n digits --yes
    """
    endpoints = session.client().online_endpoints
    endpoints.get(name)
    confirm(f"Delete endpoint `{name}` and its deployments?", yes)
    endpoints.delete(name, wait=not no_wait)
    text = f"Endpoint `{name}` is {'being ' if no_wait else ''}deleted."
    tables.done(session.form, {"name": name, "deleted": not no_wait}, text)


@group.command("invoke")
@name_argument("endpoint", "online_endpoints")
@click.option(
    "-r", "--request-file", required=True, metavar="FILE", help="The request's body, as JSON."
)
@click.option("-d", "--deployment-name", default="", help="The deployment that is to answer.")
@without_local
@common
def invoke(session: Session, name: str, request_file: str, deployment_name: str) -> None:
    """Send a request to an endpoint and print the answer.

    Example: yard online-endpoint invoke -n digits --request-file sample.json
    """
    try:
        body = Path(request_file).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"the file `{request_file}` can't be read ({error.strerror})",
            "check the path given with `--request-file`",
        ) from error
    answer = session.client().online_endpoints.invoke(name, body, deployment_name)
    body = answer.body.rstrip(b"\n")
    # A terminal gets no control characters of a scoring script; files and pipes get all bytes.
    click.echo(plain(body.decode("utf-8", "replace")) if sys.stdout.isatty() else body)


@group.command("get-credentials")
@name_argument("endpoint", "online_endpoints")
@common
def get_credentials(session: Session, name: str) -> None:
    """Print an endpoint's keys, or a token for it.

    Example: yard online-endpoint get-credentials -n digits --query primaryKey -o tsv
    """
    endpoints = session.client().online_endpoints
    endpoint = endpoints.get(name)
    shown: dict[str, str] = {}
    if endpoint.auth_mode == "key":
        keys = endpoints.keys(name)
        shown = {"primaryKey": keys.primary, "secondaryKey": keys.secondary}
    elif endpoint.auth_mode == "aml_token":
        token = endpoints.token(name)
        shown = {"accessToken": token.text, "expiryTimeUtc": token.ends_at,
                 "refreshAfterTimeUtc": token.refresh_after, "tokenType": "Bearer"}  # fmt: skip
    else:
        raise InvalidInput(
            f"endpoint `{name}` has `auth_mode: aad_token`",
            "call it with your own token of this server: `yard client-env` prints one",
        )
    tables.one(session.form, shown, lambda: tables.fields(list(shown.items())))


@group.command("regenerate-keys")
@name_argument("endpoint", "online_endpoints")
@click.option("--key-type", default="primary", help="primary or secondary. Default: primary.")
@accepts("--no-wait")
@common
def regenerate_keys(session: Session, name: str, key_type: str) -> None:
    """Replace one of an endpoint's keys; the other one stays good.

    Example: yard online-endpoint regenerate-keys -n digits --key-type secondary
    """
    session.client().online_endpoints.regenerate_keys(name, key_type)
    tables.done(
        session.form,
        {"name": name, "key_type": key_type.lower()},
        f"The {key_type.lower()} key of endpoint `{name}` is replaced.",
    )


def read_shares(text: str | None, option: str) -> dict[str, int] | None:
    """`blue=90 green=10` as a mapping.

    Raises:
        InvalidInput: it is written otherwise.
    """
    if text is None:
        return None
    shares = {}
    for part in text.replace(",", " ").split():
        deployment, equals, share = part.partition("=")
        if not equals or not deployment or not share.isdecimal():
            raise InvalidInput(
                f"`{option} {part}` is not a share", f'use `{option} "blue=90 green=10"`'
            )
        shares[deployment] = int(share[:9])
    return shares


def show_one(session: Session, endpoint: OnlineEndpoint) -> None:
    shown = {key: value for key, value in endpoint.raw.items() if key not in _HIDDEN}
    for key in ("traffic", "mirror_traffic"):
        shown[key] = _shares(shown.get(key) or {})
    tables.one(session.form, endpoint.raw, lambda: tables.fields(tables.titled(shown)))


def _shares(shares: dict[str, int]) -> str:
    return " ".join(f"{name}={share}" for name, share in shares.items())
