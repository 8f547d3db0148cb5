"""Parse a command line, run its command, print what went wrong.

Owns: the root group that loads a noun when it is named, `error:` and `hint:`, exit codes.
Leaves: what commands do to their modules.
Always: every error has the two-line shape on stderr; 2 is what was asked wrongly, 130 an
interrupt, 141 a reader that went away.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
import traceback
from typing import Any

import click

from torchyard import __version__
from torchyard.base import settings
from torchyard.base.errors import TorchyardError, nearest
from torchyard.cli.help_page import NOUNS, VERBS, help_page
from torchyard.cli.parsing import words

_MODULES = {
    "job": "torchyard.cli.jobs.commands",
    "experiment": "torchyard.cli.commands.experiments",
    "compute": "torchyard.cli.commands.computes",
    "environment": "torchyard.cli.commands.environments",
    "data": "torchyard.cli.commands.data",
    "datastore": "torchyard.cli.commands.datastores",
    "component": "torchyard.cli.commands.components",
    "model": "torchyard.cli.commands.models",
    "workspace": "torchyard.cli.commands.workspaces",
    "user": "torchyard.cli.commands.users",
    "quota": "torchyard.cli.commands.quotas",
    "server": "torchyard.cli.commands.server",
    "login": "torchyard.cli.commands.login",
    "logout": "torchyard.cli.commands.login",
    "whoami": "torchyard.cli.commands.login",
    "audit": "torchyard.cli.commands.audit",
    "doctor": "torchyard.cli.doctor.command",
    "gc": "torchyard.cli.commands.gc",
    "client-env": "torchyard.cli.commands.client_env",
    "jupyterlab": "torchyard.cli.commands.jupyterlab",
    "completion": "torchyard.cli.parsing.completion",
}
# az's options that take several values behind one name: `--set a=1 b=2`.
_GREEDY = ("--set", "--tags")
_COMMON = ("output", "query", "workspace_name")
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verb(click.Command):
    """A command that reads `--set a=1 b=2` as `az` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, _spread(args))
        except click.UsageError as error:
            # click's parser names no command for an option without its value.
            error.ctx = error.ctx or ctx
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The file first, then what is the verb's own, last what every verb takes."""
        ranks = {"file": -1} | dict.fromkeys(_COMMON, 1)

        def rank(parameter: click.Parameter) -> int:
            return 2 if "--help" in parameter.opts else ranks.get(parameter.name or "", 0)

        return sorted(super().get_params(ctx), key=rank)


class Noun(click.Group):
    """A group whose unknown verbs get a hint."""

    command_class = Verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences: click cuts them at the width of the terminal."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=200))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            raise _unknown(f"`{ctx.command_path} {name}` is no command", name, ctx, self)
        return super().resolve_command(ctx, args)


class _ReaderLeft(Exception):
    """Whoever read stdout has seen enough."""


class Root(Noun):
    """Loads the module of a noun when the noun is named."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would end the process with 1.
            raise _ReaderLeft from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*NOUNS, *VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(_MODULES[cmd_name])
        found: click.Command = getattr(
            module, "group" if cmd_name in NOUNS else cmd_name.replace("-", "_")
        )
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(noun, help=text)
            for noun, text in {**NOUNS, **VERBS}.items()
            if noun.startswith(incomplete)
        ]

    def get_help(self, ctx: click.Context) -> str:
        return help_page().rstrip("\n")


@click.group(cls=Root, context_settings=_SETTINGS, no_args_is_help=False)
@click.option("--debug", is_flag=True)
@click.version_option(__version__, message="yard %(version)s")
def yard(debug: bool) -> None:
    """Run PyTorch training on machines you own."""


def noun(name: str) -> click.Group:
    """The group of one noun; its commands are added by its module."""
    return Noun(name, help=NOUNS[name], context_settings=_SETTINGS, no_args_is_help=False)


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code."""
    _print_what_can_be()
    colour = False if settings.without_colour() else None
    try:
        code = yard.main(
            arguments or ["--help"], prog_name="yard", standalone_mode=False, color=colour
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except TorchyardError as error:
        say(error.message, error.hint)
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        say(*_usage(error))
        return 2
    except click.ClickException as error:
        say(error.format_message(), "")
        return 2
    except (KeyboardInterrupt, click.Abort):
        say("interrupted", "")
        return 130
    except (BrokenPipeError, _ReaderLeft):
        # What is still buffered must not raise once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        say(*_system_error(error))
        return 2
    except UnicodeEncodeError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        text = str(error.object)[:80].encode("utf-8", "backslashreplace").decode()
        say(f"`{text}` holds bytes that are no text in UTF-8", "write it in UTF-8")
        return 2
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        say(
            f"yard itself failed: {type(error).__name__}: {error}",
            "this is a fault of torchyard; `yard --debug …` shows where it is",
        )
        return 1


def _print_what_can_be() -> None:
    """A terminal or file of another encoding than UTF-8 gets `\\u65e5` for what it can't hold."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _system_error(error: OSError) -> tuple[str, str]:
    if error.filename:
        what = f"`{error.filename}`: {error.strerror or error}"
        return what, "check the path, its permissions and the disk"
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the folder that this shell is in is gone", "`cd` into one that is there"
    return str(error.strerror or error), "check the path, its permissions and the disk"


def say(message: str, hint: str) -> None:
    """Print an error; colour only at a terminal, and not against NO_COLOR."""
    colour = False if settings.without_colour() else None
    click.secho("error:", fg="red", bold=True, err=True, nl=False, color=colour)
    click.echo(f" {_printable(message)}", err=True, color=colour)
    if hint:
        click.secho("hint:", fg="yellow", bold=True, err=True, nl=False, color=colour)
        click.echo(f" {_printable(hint)}", err=True, color=colour)


def _printable(text: str) -> str:
    """What a file or a server wrote must not speak to the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def _spread(arguments: list[str]) -> list[str]:
    """`--set a=1 b=2` as `--set a=1 --set b=2`."""
    found: list[str] = []
    greedy, first = "", False
    for position, argument in enumerate(arguments):
        if argument == "--":
            return found + arguments[position:]
        if greedy and (first or "=" in argument) and not argument.startswith("-"):
            found += [argument] if first else [greedy, argument]
            first = False
            continue
        greedy = argument if argument in _GREEDY else ""
        first = bool(greedy)
        found.append(argument)
    return found


def _usage(error: click.UsageError) -> tuple[str, str]:
    path = error.ctx.command_path if error.ctx is not None else "yard"
    help_hint = f"see `{path} --help`"
    if isinstance(error, click.NoSuchOption):
        known = [
            option
            for parameter in (error.ctx.command.params if error.ctx is not None else [])
            for option in parameter.opts
        ]
        like = nearest(error.option_name, known)
        hint = f"did you mean `{like}`? {help_hint}" if like else help_hint
        return f"`{path}` has no option `{error.option_name}`", hint
    message = error.format_message().strip().rstrip(".")
    if isinstance(error, click.MissingParameter):
        # click lists the choices on lines of their own.
        message = " ".join(message.split()).replace(". Choose from:", ": one of")
    message = re.sub(r"(?<!\w)'([^']*)'", r"`\1`", message)
    message = re.sub(r"a valid integer( range)?", "a whole number", message)
    message = re.sub(r"Directory (`[^`]*`) is a file", r"\1 is a file, not a folder", message)
    hint = str(getattr(error, "hint", "")) or help_hint
    return message[:1].lower() + message[1:], hint


def _unknown(message: str, name: str, ctx: click.Context, group: click.Group) -> click.UsageError:
    known = group.list_commands(ctx)
    said = words.HINTS.get(name) if isinstance(group, Root) else None
    like = nearest(name, known) or next(
        (verb for verb in words.VERBS.get(name.lower(), ()) if verb in known), ""
    )
    error = click.UsageError(message, ctx)
    start = f"did you mean `{ctx.command_path} {like}`? " if like else ""
    error.hint = said or f"{start}it has: {', '.join(known)}"  # type: ignore[attr-defined]
    return error
