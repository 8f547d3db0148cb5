"""The lines of `az` that documents print, as `yard` reads them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

import run_az_lines
from torchyard.cli.az_lines import NotServed, without_az
from torchyard.cli.parsing.group import yard


def served_lines() -> Iterator[str]:
    for group in run_az_lines.read_groups():
        for line in group.lines:
            if not line.refused:
                yield run_az_lines.filled(group, line)


def test_every_option_of_every_line_is_known() -> None:
    lines = list(served_lines())
    assert len(lines) > 50
    for line in lines:
        typed = line.partition("$(")[2].rpartition(")")[0] or line
        words = shlex.split(typed.replace("\\\n", " "))
        assert words[0] == "az"
        _parse(without_az(words[1:]))


@pytest.mark.parametrize("words", [["job", "show", "--no-such-option"], ["job", "no-such-verb"]])
def test_an_unknown_word_is_noticed(words: list[str]) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        _parse(words)


def test_groups_beside_ml_are_refused_by_name() -> None:
    with pytest.raises(NotServed, match="`az extension` is not served"):
        without_az(["extension", "add", "-n", "ml", "-y"])


def _parse(words: list[str]) -> None:
    command: click.Command | None = yard
    context = click.Context(yard)
    while isinstance(command, click.Group):
        word = words.pop(0)
        command = command.get_command(context, word)
    assert command is not None, word
    command.make_context(command.name, words, parent=context)


def test_codes_that_sign_in_are_left_out_of_the_page() -> None:
    printed = "Web page: http://127.0.0.1:8765/ui/sign-in?code=Qt4u_Kq-BbY&next=/ui/jobs/a\n"
    (line,) = run_az_lines._shown(printed)
    assert "Qt4u" not in line and "code=…&next=/ui/jobs/a" in line
