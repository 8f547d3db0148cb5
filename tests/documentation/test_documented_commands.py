"""Every `yard` command that a page writes is one: its words, and its options, are the parser's.

Owns: where pages write commands: blocks, indented lines, code within a sentence.
Leaves: what the commands of guides do to end_to_end/test_guides.py.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from documentation.snippets import PAGES, ROOT
from torchyard.cli.help_page import NOUNS, VERBS
from torchyard.cli.parsing.group import yard

_IN_A_LINE = re.compile(r"^\s*(?:\$ )?(?:.*(?:&&|\|) )?(yard [a-z-].*)$", re.MULTILINE)
_IN_A_SENTENCE = re.compile(r"`((?:[A-Z_]+=\S+ )*yard [^`]+)`")
# What a sentence leaves out, and the shell's own; a remark in brackets ends a command, too.
_ENDS = ("…", "|", "&&", ">", "#", ";", "2>&1")


def typed_commands(text: str) -> Iterator[str]:
    """The lines of blocks, fenced and indented."""
    blocks = "".join(re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL))
    lines = _prose(text).splitlines()
    indented = "\n".join(line for line in lines if line.startswith("    "))
    yield from _IN_A_LINE.findall(blocks)
    yield from _IN_A_LINE.findall(indented)


def _prose(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> Iterator[list[str]]:
    for line in [*typed_commands(text), *_IN_A_SENTENCE.findall(_prose(text))]:
        words = _words(line)
        words = words[words.index("yard") + 1 :]
        for end in _ENDS:
            words = words[: words.index(end)] if end in words else words
        words = list(itertools.takewhile(lambda word: not word.startswith("("), words))
        if words and words[0] in {**NOUNS, **VERBS}:
            yield words


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quotation that ends on a later line
        return line.split()


def parse(words: list[str]) -> None:
    """Read the words as `yard` would; values may be left out, or be names for them."""
    command: click.Command = yard
    context = click.Context(yard, info_name="yard")
    while isinstance(command, click.Group) and words:
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
    with contextlib.suppress(click.BadParameter, click.BadOptionUsage, click.exceptions.Exit):
        command.parse_args(context, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_commands_can_be_read(page: Path) -> None:
    wrong = []
    for words in commands(page.read_text()):
        try:
            parse(words)
        except click.ClickException as error:
            wrong.append(f"yard {' '.join(words)}: {error.format_message()}")
    assert wrong == []


def test_a_command_that_is_none_is_found() -> None:
    text = "Say `yard job list --ever` or\n\n```\n$ yard job frobnicate -n NAME  # now\n```\n"
    assert list(commands(text)) == [
        ["job", "frobnicate", "-n", "NAME"],
        ["job", "list", "--ever"],
    ]
    for words in commands(text):
        with pytest.raises(click.UsageError):
            parse(words)
