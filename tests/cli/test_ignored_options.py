"""Options that `az` knows and that do nothing here: accepted everywhere, shown nowhere."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace
from torchyard.cli.help_page import NOUNS
from torchyard.cli.parsing.group import yard as root
from torchyard.cli.parsing.options import IGNORED, IGNORED_HELP

EVERYWHERE = ("--resource-group", "--subscription", "--debug", "--verbose", "--only-show-errors")
# Source: the reference of the `az ml` extension, by noun and verb.
IN_AZ = {
    ("job", "create"): ("--skip-validation",),
    ("job", "cancel"): ("--no-wait",),
    ("data", "create"): ("--datastore", "--no-wait", "--skip-validation"),
    ("model", "create"): ("--datastore", "--no-wait"),
    ("environment", "create"): ("--datastore", "--no-wait"),
    ("component", "create"): ("--no-wait", "--skip-validation"),
    ("compute", "create"): ("--location", "--no-wait"),
    ("compute", "update"): ("--no-wait",),
    ("compute", "delete"): ("--no-wait",),
    ("compute", "list-sizes"): ("--location",),
    ("workspace", "create"): ("--no-wait",),
    ("workspace", "update"): ("--no-wait", "--update-dependent-resources"),
    ("workspace", "delete"): ("--no-wait", "--all-resources", "--permanently-delete"),
    ("component", "update"): ("--no-wait",),
}
VERBS = ("create", "update", "delete", "list")


def commands() -> Iterator[tuple[str, str, click.Command]]:
    context = click.Context(root)
    for noun in NOUNS:
        group = root.get_command(context, noun)
        assert isinstance(group, click.Group)
        for verb, command in group.commands.items():
            yield noun, verb, command


def accepted() -> Iterator[tuple[str, str, str]]:
    for noun, verb, _ in commands():
        for option in (*(EVERYWHERE if verb in VERBS else ()), *IN_AZ.get((noun, verb), ())):
            yield noun, verb, option


@pytest.mark.parametrize(("noun", "verb", "option"), list(accepted()))
def test_an_option_of_az_is_accepted(noun: str, verb: str, option: str) -> None:
    command = {(noun, verb): command for noun, verb, command in commands()}[noun, verb]
    value = [] if IGNORED[option].is_flag else ["x"]
    context = click.Context(command)
    parsed, rest, _ = command.make_parser(context).parse_args([option, *value])
    assert rest == [] and parsed[option.lstrip("-").replace("-", "_")]


def test_every_listed_option_is_accepted_somewhere() -> None:
    assert {option for _, _, option in accepted()} == set(IGNORED)


def test_no_help_page_shows_an_ignored_option() -> None:
    for noun, verb, command in commands():
        ignored = [
            parameter
            for parameter in command.params
            if isinstance(parameter, click.Option) and parameter.help == IGNORED_HELP
        ]
        context = click.Context(command, info_name=f"yard {noun} {verb}")
        shown = command.get_help(context).split()
        for parameter in ignored:
            assert parameter.hidden and parameter.opts[0] in IGNORED
            assert parameter.opts[0] not in shown
        names = {parameter.opts[0] for parameter in ignored}
        assert set(IN_AZ.get((noun, verb), ())) <= names


def test_a_command_ignores_them_all_at_once(server: ServedWorkspace, yard: Yard) -> None:
    answer = yard(
        *("job", "list", "-g", "group", "--subscription", "id", "--verbose", "--only-show-errors"),
        *("--debug", "-o", "json"),
    )
    assert answer.code == 0 and answer.err == ""
