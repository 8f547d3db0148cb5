"""The reference of `yard`'s commands for the documentation site, made of what `--help` prints.

Owns: the order and the headings, what stands of a command: words, example, arguments, options.
Leaves: the words to the commands themselves.
Always: hidden commands and options are left out, as in the help.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from torchyard.cli.help_page import NOUNS, VERBS
from torchyard.cli.parsing.group import yard

_HEAD = """# Commands

`yard NOUN VERB`, with the nouns, verbs and options of `az ml`. Made of what `yard NOUN VERB --help` prints. Most commands take `-o json`, `--query JMESPATH` and `-w WORKSPACE`, too; those are not repeated here.

"""  # noqa: E501
_COMMON = {"output", "query", "workspace_name"}


def text() -> str:
    root = click.Context(yard, info_name="yard")
    sections = [_section(root, name, page[1]) for name, page in {**NOUNS, **VERBS}.items()]
    index = "\n".join(
        f"- [`yard {name}`](#yard-{name}): {line}" for name, (_, line) in {**NOUNS, **VERBS}.items()
    )
    return f"{_HEAD}{index}\n\n" + "\n".join(sections)


def _section(root: click.Context, name: str, line: str) -> str:
    command = yard.get_command(root, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=root)
    return f"## yard {name}\n\n" + "\n".join(_command(command, context, line))


def _command(command: click.Command, context: click.Context, line: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield from _verb(command, context)
        return
    yield f"{line}\n"
    for name in command.list_commands(context):
        verb = command.get_command(context, name)
        if verb is not None and not verb.hidden:
            below = click.Context(verb, info_name=name, parent=context)
            yield f"### {below.command_path}\n"
            yield from _verb(verb, below)


def _verb(command: click.Command, context: click.Context) -> Iterator[str]:
    words, _, example = (command.help or "").partition("\b\nExample:")
    yield words.strip() + "\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    if example:
        lines = "\n".join(line.strip() for line in example.strip().splitlines())
        continued = lines.replace("\\\n", "\\\n    ")
        yield f"Example:\n\n```text\n{continued}\n```\n"
    rows = [
        record
        for parameter in command.get_params(context)
        if parameter.name not in _COMMON
        and "--help" not in parameter.opts
        and (record := parameter.get_help_record(context))
    ]
    if rows:
        yield "| option | |\n|---|---|"
        yield from (f"| `{_cell(option)}` | {_cell(words)} |" for option, words in rows)
        yield ""


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(text(), end="")
