"""`yard schema`: the JSON Schema of a file, for editors.

Owns: the verb and its page.
Leaves: the schemas to `torchyard.schemas`, which are made from the models of the files.
Always: it asks no server.
"""

from __future__ import annotations

from importlib import resources

import click

from torchyard.cli.parsing.group import Verb


def _names() -> list[str]:
    files = resources.files("torchyard.schemas").iterdir()
    return sorted(file.name[:-5] for file in files if file.name.endswith(".json"))


@click.command("schema", cls=Verb)
@click.argument("file", type=click.Choice(_names()), metavar="FILE")
def schema(file: str) -> None:
    """Print the JSON Schema of a file, by which an editor completes and checks it.

    Write `# yaml-language-server: $schema=job.schema.json` at the top of a job file.

    Example: yard schema job > job.schema.json
    """
    text = resources.files("torchyard.schemas").joinpath(f"{file}.json").read_text("utf-8")
    click.echo(text, nl=False)
