"""`yard ui`: open the web page.

Owns: the command.
Leaves: the link to the server, opening it to terminal/browser.py.
Always: the link is printed, so that it can be opened elsewhere; it works once, within a minute.
"""

from __future__ import annotations

import click

from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common
from torchyard.cli.terminal import browser, server_addresses, tables


@click.command("ui", cls=Verb)
@click.option("--no-open", is_flag=True, help="Print the link and open no browser.")
@common
def ui(session: Session, no_open: bool) -> None:
    """Open the web page, signed in as you.

    The link that it prints works once, within a minute.

    Example: yard ui --no-open
    """
    client = session.client()
    page = browser.jobs_page(client.workspace)
    link = browser.show(client.transport, page, with_window=not no_open)
    own = client.transport.url
    links = [
        str(link["url"]).replace(own, address, 1)
        for address in server_addresses.read(client.transport)
        if address != own
    ]
    lines = [str(link["url"])]
    lines += [f"In a browser on another machine: {' or '.join(links)}"] if links else []
    tables.one(session.form, {**link, "urls_for_others": links}, lambda: "\n".join(lines))
