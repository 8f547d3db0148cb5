"""`yard compute start`, `stop`, `restart` and `open`: compute instances.

Owns: the verbs, what is shown of an instance.
Leaves: clusters to commands.py, requests to client/interactive/.
Always: the verbs that instances share with clusters ask here whether a name is an instance's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import NotFound
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, accepts, common, name_argument
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.client.interactive.instances import Instance

TYPE = "computeinstance"
_HIDDEN = ("notices", "$schema", "created_at", "provisioning_state")


def is_instance(document: Mapping[str, Any]) -> bool:
    return str(document.get("type") or "").lower() == TYPE


def find(session: Session, name: str) -> Instance | None:
    """The instance of that name, if there is one."""
    try:
        return session.client().instances.get(name)
    except NotFound:
        return None


def show(session: Session, instance: Instance) -> None:
    """Print it, with a link to its JupyterLab where a person reads it."""
    link = ""
    if instance.state == "Running" and sys.stdout.isatty():
        link = _link(session, instance.name)
    shown = {key: value for key, value in instance.raw.items() if key not in _HIDDEN}
    tables.one(
        session.form, instance.raw, lambda: tables.fields([*tables.titled(shown), ("Link", link)])
    )


def delete(session: Session, name: str) -> None:
    session.client().instances.delete(name)
    tables.done(session.form, {"name": name, "deleted": True}, f"Compute `{name}` is deleted.")


def _link(session: Session, name: str) -> str:
    from torchyard.base.errors import TorchyardError

    try:
        return session.client().instances.link(name)
    except TorchyardError:
        return ""


@click.command("start", cls=Verb)
@name_argument("compute", "instances")
@accepts("--no-wait")
@common
def start(session: Session, name: str) -> None:
    """Start a compute instance.

    Example: yard compute start -n ada-lab
    """
    show(session, session.client().instances.start(name))


@click.command("stop", cls=Verb)
@name_argument("compute", "instances")
@accepts("--no-wait")
@common
def stop(session: Session, name: str) -> None:
    """Stop a compute instance; its files are kept.

    Example: yard compute stop -n ada-lab
    """
    show(session, session.client().instances.stop(name))


@click.command("restart", cls=Verb)
@name_argument("compute", "instances")
@accepts("--no-wait")
@common
def restart(session: Session, name: str) -> None:
    """Stop a compute instance, and start it again.

    Example: yard compute restart -n ada-lab
    """
    show(session, session.client().instances.restart(name))


@click.command("open", cls=Verb)
@name_argument("compute", "instances")
@common
def open_instance(session: Session, name: str) -> None:
    """Open a compute instance's JupyterLab in the browser, and print its link.

    Example: yard compute open -n ada-lab
    """
    link = session.client().instances.link(name)
    click.echo(link)
    click.launch(link)
