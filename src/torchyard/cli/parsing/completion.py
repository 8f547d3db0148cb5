"""`yard completion`: shell completion of nouns, verbs, options and names.

Owns: the scripts, and the names to offer.
Leaves: parsing partial command lines to click.
Always: names that aren't available quickly are not offered: no server is started or waited for
longer than `_TIMEOUT_S`, and nothing is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from torchyard.base import settings as base_settings

if TYPE_CHECKING:
    from torchyard.client.client import Client

SHELLS = ("bash", "zsh", "fish")
_TIMEOUT_S = 0.7
_OFFERED = 100


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete `yard`'s commands, options and names.

    \b
    Example: yard completion bash >> ~/.bashrc
             yard completion zsh >> ~/.zshrc
             yard completion fish > ~/.config/fish/completions/yard.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.Command("yard"), {}, "yard", "_YARD_COMPLETE")
    # BashComplete.source() would run bash to check its version; the script is the same.
    click.echo(ShellComplete.source(script))


def names(noun: str, workspace: str, incomplete: str) -> list[str]:
    """Names of `noun`, an attribute of `Client`, that begin with `incomplete`."""

    def listed(client: Client) -> list[str]:
        if noun == "jobs":
            return [job.name for job in client.jobs.list(max_results=_OFFERED)]
        return [str(row.name) for row in getattr(client, noun).list()]

    return _asked(workspace, incomplete, listed)


def metric_keys(job: str, workspace: str, incomplete: str) -> list[str]:
    """Metrics of a job that begin with `incomplete`."""
    return _asked(
        workspace, incomplete, lambda client: [key.key for key in client.jobs.metric_keys(job)]
    )


def statuses(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The statuses of jobs that begin with `incomplete`, in any case."""
    from typing import get_args

    from torchyard.client.job import JobStatus

    return [name for name in get_args(JobStatus) if name.lower().startswith(incomplete.lower())]


def _asked(workspace: str, incomplete: str, ask: Callable[[Client], list[str]]) -> list[str]:
    try:
        return [name for name in _of_server(workspace, ask) if name.startswith(incomplete)]
    except Exception:
        # An error message would garble the line being completed.
        return []


def _of_server(workspace: str, ask: Callable[[Client], list[str]]) -> list[str]:
    from torchyard.base.http import Transport
    from torchyard.client import embedded
    from torchyard.client.client import Client

    settings = base_settings.read()
    url, token = settings.url, settings.token
    if not url:
        running = embedded.find(settings)
        if running is None:
            return []
        url, token = running.url, embedded.token(settings)
    transport = Transport(url, token, timeout_s=_TIMEOUT_S, ca_cert=settings.ca_cert)
    try:
        return ask(Client(workspace=workspace, settings=settings, transport=transport))
    finally:
        transport.close()
