"""`yard job shell`: a shell, or a command, inside a running job.

Owns: this terminal's mode, its size, what is typed and printed.
Leaves: requests to client/interactive/, the process to the job's node.
Always: the terminal is as before at the end; the exit code is that of the shell or command.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, names_of

_COMMAND = "torchyard.job_shell_command"
_READ_BYTES = 32 << 10


class _WithCommand(Verb):
    """Keep the command after `--` apart from the name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command("shell", cls=_WithCommand, options_metavar="[OPTIONS] [-- COMMAND...]")
@click.argument("argument", metavar="[NAME]", required=False, shell_complete=names_of("jobs"))
@click.option("-n", "--name", default="", help="Job name.")
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    default=None,
    metavar="RANK",
    help="Enter where this rank runs. Default: the node's first.",
)
@click.option(
    "--node", type=click.IntRange(min=0), default=None, metavar="NODE", help="Enter this node."
)
@common
def shell(
    session: Session, argument: str | None, name: str, rank: int | None, node: int | None
) -> int:
    """Open a shell inside a running job, or run the command after `--` in it.

    It has the environment, folder, user and GPUs of a rank, and ends with the job. With
    `torchyard: {hold: 30m}` in its file, a job stays so long after its script has ended.

    Example: yard job shell brave-otter --rank 1 -- py-spy dump --pid 1234
    """
    if argument and name and argument != name:
        raise click.UsageError(f"Two names were given, '{name}' and '{argument}'.")
    name = name or argument or ""
    if not name:
        raise click.UsageError("The job is missing: use '-n NAME'.")
    command = click.get_current_context().meta.get(_COMMAND, [])
    from torchyard.client.interactive.shells import ShellOptions

    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    size = _size()
    options = ShellOptions(
        rank,
        node,
        tuple(command),
        has_terminal,
        size.lines,
        size.columns,
        os.environ.get("TERM", "xterm"),
    )
    with session.client().jobs.shell(name, options) as opened:
        with _raw(has_terminal):
            return _run(opened, has_terminal)


def _size() -> os.terminal_size:
    """The terminal's own size; variables may say how wide to print, which is not the same."""
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except OSError:
        return os.terminal_size((80, 24))


def _run(opened: Any, has_terminal: bool) -> int:
    from torchyard.client.printing import bytes_of
    from torchyard.shared import channels

    threading.Thread(target=_type, args=(opened,), daemon=True).start()
    with _resizing(opened.resize if has_terminal else None):
        out, err = bytes_of(sys.stdout), bytes_of(sys.stderr)
        for kind, data in opened.output():
            stream = err if kind == channels.ERROR_OUTPUT else out
            stream.write(data)
            stream.flush()
    return int(opened.exit_code)


def _type(opened: Any) -> None:
    """Send what is typed, until the end of standard input."""
    with suppress(Exception):  # the output says what happened
        while data := os.read(sys.stdin.fileno(), _READ_BYTES):
            opened.write(data)
        opened.end_input()


@contextmanager
def _raw(is_terminal: bool) -> Iterator[None]:
    """Every key goes to the job, Ctrl-C too."""
    if not is_terminal:
        yield
        return
    try:
        import termios
        import tty
    except ImportError:  # Windows: lines are sent when they are complete
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _resizing(resize: Callable[[int, int], None] | None) -> Iterator[None]:
    """Tell the job when this terminal changes its size."""
    import signal

    if resize is None or not hasattr(signal, "SIGWINCH"):
        yield
        return

    def tell(*_: object) -> None:
        size = _size()
        threading.Thread(target=resize, args=(size.lines, size.columns), daemon=True).start()

    before = signal.signal(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
