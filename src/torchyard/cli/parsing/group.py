"""Parse a command line, run its command, print its error.

Owns: the root group that loads a noun's module on demand, `error:` and `hint:`, exit codes.
Leaves: what commands do to their modules.
Always: every error prints `error:` and `hint:` lines on stderr; the exit code is 2 for wrong usage,
130 for an interrupt, 141 if the reader of stdout closed the pipe.
"""

from __future__ import annotations

import inspect
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
from torchyard.base.feature import load
from torchyard.base.terminal_text import escaped
from torchyard.cli.help_page import NOUNS, VERBS, help_page
from torchyard.cli.parsing import words

# az's options that take several values behind one name: `--set a=1 b=2`.
_GREEDY = ("--set", "--tags", "--defaults", "-d")
_COMMON = ("output", "query", "workspace_name")
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verb(click.Command):
    """A command that reads `--set a=1 b=2` as `az` does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # click would break an example's line, at a hyphen too; whole, it can be copied.
        self.help = inspect.cleandoc(self.help or "").replace("\n\nExample:", "\n\n\b\nExample:")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, _spread(args))
        except click.UsageError as error:
            # click's parser doesn't set the command for an option without a value.
            error.ctx = error.ctx or ctx
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The file first, then the verb's own options, the common ones last."""
        ranks = {"file": -1} | dict.fromkeys(_COMMON, 1)

        def rank(parameter: click.Parameter) -> int:
            return 2 if "--help" in parameter.opts else ranks.get(parameter.name or "", 0)

        return sorted(super().get_params(ctx), key=rank)


class Noun(click.Group):
    """A group that answers unknown verbs with a hint."""

    command_class = Verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands with whole sentences: click cuts them at the terminal's width."""
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
            raise _unknown(f"`{ctx.command_path} {name}` is not a command", name, ctx, self)
        return super().resolve_command(ctx, args)


class _ReaderLeft(Exception):
    """The reader of stdout closed the pipe."""


class Root(Noun):
    """Load a noun's module when the noun is named."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would exit with 1.
            raise _ReaderLeft from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*NOUNS, *VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        page = {**NOUNS, **VERBS}.get(cmd_name)
        if page is None:
            return None
        attribute = "group" if cmd_name in NOUNS else cmd_name.replace("-", "_")
        command: click.Command = load(f"{page[0]}:{attribute}")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(noun, help=text)
            for noun, (_, text) in {**NOUNS, **VERBS}.items()
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
    """The group of one noun; the noun's module adds its commands."""
    return Noun(name, help=NOUNS[name][1], context_settings=_SETTINGS, no_args_is_help=False)


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code."""
    _escape_unencodable()
    colour = False if settings.without_colour() else None
    try:
        code = yard.main(
            arguments or ["--help"], prog_name="yard", standalone_mode=False, color=colour
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except TorchyardError as error:
        say_all(error)
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
        # Flushing what is still buffered at exit must not raise again.
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
        say(f"`{text}` contains bytes that are not valid UTF-8", "encode it as UTF-8")
        return 2
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        say(
            f"unexpected error: {type(error).__name__}: {error}",
            "this is a bug in torchyard; `yard --debug …` prints the traceback",
        )
        return 1


def _escape_unencodable() -> None:
    """Write `\\u65e5` for characters that the encoding of a terminal or file lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _system_error(error: OSError) -> tuple[str, str]:
    if error.filename:
        message = f"`{error.filename}`: {error.strerror or error}"
        return message, "check the path, its permissions and the disk's free space"
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current folder no longer exists", "`cd` into an existing one"
    return str(error.strerror or error), "check the path, its permissions and the disk's free space"


def say_all(error: TorchyardError) -> None:
    """Print an error and those that it carries."""
    for each, hint in error.all_with_hints():
        say(each.message, hint)


def say(message: str, hint: str) -> None:
    """Print an error, in colour at a terminal unless NO_COLOR is set."""
    colour = False if settings.without_colour() else None
    click.secho("error:", fg="red", bold=True, err=True, nl=False, color=colour)
    click.echo(f" {escaped(message)}", err=True, color=colour)
    if hint:
        click.secho("hint:", fg="yellow", bold=True, err=True, nl=False, color=colour)
        click.echo(f" {escaped(hint)}", err=True, color=colour)


def _spread(arguments: list[str]) -> list[str]:
    """Turn `--set a=1 b=2` into `--set a=1 --set b=2`."""
    spread: list[str] = []
    greedy, first = "", False
    for position, argument in enumerate(arguments):
        if argument == "--":
            return spread + arguments[position:]
        if greedy and (first or "=" in argument) and not argument.startswith("-"):
            spread += [argument] if first else [greedy, argument]
            first = False
            continue
        greedy = argument if argument in _GREEDY else ""
        first = bool(greedy)
        spread.append(argument)
    return spread


def _usage(error: click.UsageError) -> tuple[str, str]:
    path = error.ctx.command_path if error.ctx is not None else "yard"
    help_hint = f"see `{path} --help`"
    if isinstance(error, click.NoSuchOption):
        options = [
            option
            for parameter in (error.ctx.command.params if error.ctx is not None else [])
            for option in parameter.opts
        ]
        like = nearest(error.option_name, options)
        hint = f"did you mean `{like}`? {help_hint}" if like else help_hint
        return f"`{path}` has no option `{error.option_name}`", hint
    message = error.format_message().strip().rstrip(".")
    if isinstance(error, click.MissingParameter):
        # click lists the choices on separate lines.
        message = " ".join(message.split()).replace(". Choose from:", ": one of")
    message = re.sub(r"(?<!\w)'([^']*)'", r"`\1`", message)
    message = re.sub(r"a valid integer( range)?", "a whole number", message)
    message = re.sub(r"Directory (`[^`]*`) is a file", r"\1 is a file, not a folder", message)
    hint = str(getattr(error, "hint", "")) or help_hint
    return message[:1].lower() + message[1:], hint


def _unknown(message: str, name: str, ctx: click.Context, group: click.Group) -> click.UsageError:
    commands = group.list_commands(ctx)
    hint = words.HINTS.get(name) if isinstance(group, Root) else None
    like = nearest(name, commands) or next(
        (verb for verb in words.VERBS.get(name.lower(), ()) if verb in commands), ""
    )
    error = click.UsageError(message, ctx)
    start = f"did you mean `{ctx.command_path} {like}`? " if like else ""
    error.hint = hint or f"{start}commands: {', '.join(commands)}"  # type: ignore[attr-defined]
    return error
