"""The options that commands share: `-o`, `--query`, `-w`, and names given with or without `-n`.

Owns: the shared options, the session built from them, documents from files and options, the list of
`az` options that do nothing here.
Leaves: connecting and finding the workspace to client/.
Always: an option that `az` knows and that does nothing here is accepted and hidden from help; if
ignoring it could surprise, a warning says so.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchyard.base import settings as base_settings
from torchyard.base.errors import InvalidInput, NotFound, nearest
from torchyard.base.settings import Settings
from torchyard.base.terminal_text import plain
from torchyard.cli.terminal import tables
from torchyard.client.client import Client

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document

Command = TypeVar("Command", bound=Callable[..., Any])
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


@dataclass(frozen=True)
class Session:
    """One invocation of the command."""

    settings: Settings
    workspace: str
    form: tables.Form

    def client(self) -> Client:
        with python_warnings_as_lines():
            client = Client(
                workspace=self.workspace, settings=self.settings, on_start=_say_starting
            )
        click.get_current_context().call_on_close(client.close)
        return client


@dataclass(frozen=True)
class _Ignored:
    """An option that `az` knows and that does nothing here."""

    declarations: tuple[str, ...]
    is_flag: bool = True
    warning: str = ""

    def warn_when_given(
        self, context: click.Context, parameter: click.Parameter, value: object
    ) -> object:
        if value and self.warning:
            warn(self.warning)
        return value


LAST = "@last"
"""Stands for the user's newest job wherever a job's name goes."""
_LAST_PLACES = (f"azureml://jobs/{LAST}/", f"runs:/{LAST}/")
_LAST_AMONG = 1000
IGNORED_HELP = "Accepted for az compatibility; ignored."
IGNORED = {
    ignored.declarations[0]: ignored
    for ignored in (
        _Ignored(("--resource-group", "-g"), is_flag=False),
        _Ignored(("--subscription",), is_flag=False),
        _Ignored(("--debug",)),  # group.run() reads it: it prints the traceback of an error
        _Ignored(("--verbose",)),
        _Ignored(("--only-show-errors",)),
        _Ignored(("--no-wait",)),
        _Ignored(("--location", "-l"), is_flag=False),
        _Ignored(("--all-resources",)),
        _Ignored(("--permanently-delete", "-p")),
        _Ignored(("--update-dependent-resources", "-u")),
        _Ignored(
            ("--datastore",),
            is_flag=False,
            warning="`--datastore` is ignored: uploads go to the workspace's own datastore",
        ),
        _Ignored(
            ("--skip-validation",),
            warning="`--skip-validation` is ignored: the server validates whatever it accepts",
        ),
    )
}
"""By its long name; `accepts` adds them to commands."""
# How long a program that answers through a pipe has for it.
_PIPED_ANSWER_S = 2.0
_EVERYWHERE = ("--debug", "--verbose", "--only-show-errors")
_AZURE_PLACE = ("--resource-group", "--subscription")


def takes_over(command: Command) -> Command:
    """Take `--take-over`; the command receives `take_over`."""
    return click.option(
        "--take-over",
        is_flag=True,
        help="Make another's yours: all of it runs with your account and rights.",
    )(command)


def accepts(*names: str) -> Callable[[Command], Command]:
    """Accept options of `IGNORED`, hidden from help; the command doesn't receive them."""

    def decorate(command: Command) -> Command:
        for name in names:
            ignored = IGNORED[name]
            command = click.option(
                *ignored.declarations,
                is_flag=ignored.is_flag,
                expose_value=False,
                hidden=True,
                callback=ignored.warn_when_given,
                help=IGNORED_HELP,
            )(command)
        return command

    return decorate


def common(command: Command) -> Command:
    """Give the command its `Session` as first argument."""
    return accepts(*_AZURE_PLACE)(with_session(command))


def with_session(command: Command) -> Command:
    """Like `common`, for a command with its own `--resource-group` and `--subscription`."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(tables.OUTPUTS, case_sensitive=False),
        default=None,
        help="Output format.",
    )
    @click.option(
        "--query", default="", metavar="JMESPATH", help="Filter the output with a JMESPath query."
    )
    @click.option("-w", "--workspace-name", metavar="NAME", default="", help="Workspace name.")
    @accepts(*_EVERYWHERE)
    @functools.wraps(command)
    def call(
        *arguments: Any,
        output: str | None,
        query: str,
        workspace_name: str,
        **options: Any,
    ) -> Any:
        session = Session(base_settings.read(), workspace_name, tables.Form(output, query))
        return command(session, *arguments, **_with_last(session, options))

    return call  # type: ignore[return-value]


def _with_last(session: Session, options: dict[str, Any]) -> dict[str, Any]:
    """The options with the name of the user's newest job where `@last` stands for it."""
    last = ""

    def replaced(value: Any) -> Any:
        nonlocal last
        if isinstance(value, tuple):
            return tuple(replaced(item) for item in value)
        is_place = isinstance(value, str) and value.startswith(_LAST_PLACES)
        if value != LAST and not is_place:
            return value
        last = last or _last_job(session)
        return value.replace(LAST, last, 1)

    is_job = "job" in click.get_current_context().command_path.split()[1:2]
    option_names = ("name", "names", "argument", "parent_job_name", "path") if is_job else ("path",)
    keys = [key for key in option_names if key in options]
    return {**options, **{key: replaced(options[key]) for key in keys}}


def _last_job(session: Session) -> str:
    """
    Raises:
        NotFound: the user has no job in the workspace.
    """
    client = session.client()
    user = client.users.me().user
    for job in client.jobs.list(max_results=_LAST_AMONG):
        # Steps and trials are jobs that nobody submitted.
        is_made = job.parent is not None and job.name.startswith(f"{job.parent}_")
        if job.owner == user and not is_made:
            return job.name
    raise NotFound(
        f"`{LAST}` is your newest job, and workspace `{client.workspace}` has none of yours",
        "submit one with `yard job create -f job.yml`",
    )


def name_argument(noun: str, complete: str = "") -> Callable[[Command], Command]:
    """Take `-n NAME` or a bare NAME; the command receives `name`.

    Args:
        complete: where a shell gets names to offer: an attribute of `Client`, such as `jobs`.
    """

    def decorate(command: Command) -> Command:
        offer = names_of(complete) if complete else None

        @click.argument("argument", metavar="[NAME]", required=False, shell_complete=offer)
        @click.option(
            "-n", "--name", default=None, help=f"{noun.capitalize()} name.", shell_complete=offer
        )
        @functools.wraps(command)
        def with_name(
            *arguments: Any, argument: str | None, name: str | None, **options: Any
        ) -> Any:
            if argument and name and argument != name:
                raise click.UsageError(f"Two names were given, '{name}' and '{argument}'.")
            if not (argument or name):
                raise click.UsageError(f"The {noun} name is missing: use '-n NAME'.")
            return command(*arguments, name=name or argument, **options)

        return with_name  # type: ignore[return-value]

    return decorate


def many_names(
    noun: str, complete: str = "", offer: Complete | None = None
) -> Callable[[Command], Command]:
    """Take any number of bare names and `-n NAME`; the command receives `names`, each once.

    Args:
        complete: where a shell gets names to offer: an attribute of `Client`, such as `jobs`.
        offer: what a shell offers instead where a bare name stands.
    """

    def decorate(command: Command) -> Command:
        names = names_of(complete) if complete else None

        @click.argument("argument", metavar="[NAME]...", nargs=-1, shell_complete=offer or names)
        @click.option(
            "-n", "--name", multiple=True, help=f"{noun.capitalize()} name.", shell_complete=names
        )
        @functools.wraps(command)
        def with_names(
            *arguments: Any, argument: tuple[str, ...], name: tuple[str, ...], **options: Any
        ) -> Any:
            names = tuple(dict.fromkeys((*name, *argument)))
            return command(*arguments, names=names, **options)

        return with_names  # type: ignore[return-value]

    return decorate


def versioned(command: Command) -> Command:
    """Take `-v VERSION` or `-l LABEL`."""
    version = click.option("-v", "--version", default="", help="Version. Default: the latest.")
    label = click.option(
        "-l",
        "--label",
        default="",
        metavar="LABEL",
        help="Label such as latest, instead of a version.",
    )
    return version(label(command))


def version_of(name: str, version: str, label: str) -> tuple[str, str]:
    """Name and version from `-n digits -v 1`, `digits:1` or `azureml:digits@latest`.

    The version is empty if none is named.
    """
    from torchyard.base import refs

    # MLflow's clients may use model names that no reference can hold, such as ones with spaces.
    ref = refs.parse(name) if set(":@/") & set(name) else refs.Ref(name)
    versions = {text for text in (version, label, ref.version, ref.label) if text}
    if len(versions) > 1:
        raise click.UsageError("Two versions were given; name one.")
    return ref.name, next(iter(versions), "")


def reference_of(name: str, version: str, label: str) -> str:
    """Like `version_of`, as one string: `digits`, `digits:1` or `digits@latest`."""
    name, which = version_of(name, version, label)
    if not which:
        return name
    return f"{name}@{which}" if which == "latest" else f"{name}:{which}"


def filed(noun: str) -> Callable[[Command], Command]:
    """Take `-f FILE` and `--set`; the command receives `document`, filled from them."""

    def decorate(command: Command) -> Command:
        @click.option("-f", "--file", default="", metavar="FILE", help=f"YAML file of the {noun}.")
        @click.option("--set", "assignments", multiple=True, metavar="A.B=VALUE", help="Set a key.")
        @functools.wraps(command)
        def with_document(
            session: Session, *arguments: Any, file: str, assignments: tuple[str, ...], **more: Any
        ) -> Any:
            document = document_from(file, assignments)
            return command(session, *arguments, document=document, **more)

        return with_document  # type: ignore[return-value]

    return decorate


def archivable(command: Command) -> Command:
    """Take `--include-archived` or `--archived-only`; `archived` is no, too or only."""

    @click.option("--include-archived", is_flag=True, help="Include archived items.")
    @click.option("--archived-only", is_flag=True, help="List only archived items.")
    @functools.wraps(command)
    def with_archived(
        *arguments: Any, include_archived: bool, archived_only: bool, **options: Any
    ) -> Any:
        if include_archived and archived_only:
            raise click.UsageError("'--include-archived' and '--archived-only' can't be combined.")
        archived = "only" if archived_only else "too" if include_archived else "no"
        return command(*arguments, archived=archived, **options)

    return with_archived  # type: ignore[return-value]


def at_most(rows: Any, archived: str, max_results: int | None) -> Any:
    """The first `max_results` rows; if `archived` is `only`, of the archived ones."""
    matching = [row for row in rows if archived != "only" or row.get("archived")]
    return matching if max_results is None else matching[:max_results]


def many(command: Command) -> Command:
    """Take `-r COUNT`."""
    return click.option(
        "-r",
        "--max-results",
        type=click.IntRange(min=1),
        default=None,
        metavar="COUNT",
        help="Maximum number of results.",
    )(command)


def tagged(tags: tuple[str, ...]) -> dict[str, str] | None:
    """`--tags a=b c=d` as a mapping; None if there are none."""
    parsed = {}
    for tag in tags:
        key, equals, value = tag.partition("=")
        if not equals or not key:
            raise InvalidInput(f"`--tags {tag}` is not a tag", "use `--tags key=value`")
        parsed[key] = value
    return parsed or None


def document_from(file: str, assignments: tuple[str, ...]) -> Document:
    """The file, or an empty document in this folder, with every `--set` applied."""
    from torchyard.cli.parsing import documents

    document = documents.read(file) if file else documents.empty(Path.cwd())
    for assignment in assignments:
        document.set(assignment)
    return document


def changes_from(
    assignments: tuple[str, ...],
    options: dict[str, Any],
    changeable: tuple[str, ...],
    document: Document | None = None,
    before: dict[str, Any] | None = None,
    take_over: bool = False,
) -> dict[str, Any]:
    """The changes that `update` sends: at least one, and only `changeable` keys.

    Args:
        document: of a file, over which assignments and options win.
        before: what is changed; an assignment such as `tags.team=x` keeps its other tags.
        take_over: which is a change, too.
    """
    document = document or document_from("", ())
    for assignment in assignments:
        key = assignment.partition("=")[0].partition(".")[0]
        if before and isinstance(before.get(key), dict):
            document.value.setdefault(key, dict(before[key]))
        document.set(assignment)
    document.fill(options)
    wrong = [key for key in document.value if key not in changeable]
    if wrong:
        like = nearest(wrong[0], changeable)
        position = document.position_of((wrong[0],)) if document.name else ""
        raise InvalidInput(
            f"{position}: `{wrong[0]}` can't be changed"
            if position
            else f"`{wrong[0]}` can't be changed",
            (f"did you mean `{like}`? " if like else "") + f"one of: {', '.join(changeable)}",
        )
    if take_over:
        document.fill({"torchyard": {"take_over": True}})
    if not document.value:
        raise InvalidInput("no changes were given", "use `--set key=value`")
    tags = document.value.get("tags")
    if isinstance(tags, dict):
        document.value["tags"] = {key: _tag(value) for key, value in tags.items()}
    return document.value


def _tag(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, (dict, list)) else str(value)


def names_of(noun: str) -> Complete:
    """Complete names from the workspace; any error yields none, silently and quickly.

    Where `-n` has given the one name that a verb takes, no bare name is offered.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from torchyard.cli.parsing.completion import names

        is_bare = parameter.param_type_name == "argument" and parameter.nargs == 1
        if is_bare and context.params.get("name"):
            return []
        return names(noun, str(context.params.get("workspace_name") or ""), incomplete)

    return complete


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation at a terminal, or read it from a pipe as that of `yes`.

    Raises:
        InvalidInput: the answer is no, or nobody answers.
    """
    import sys

    if yes:
        return
    if sys.stdin is not None and sys.stdin.isatty():
        if not click.confirm(question, err=True):
            raise InvalidInput("not confirmed; nothing was done")
        return
    answer = _piped_answer()
    if answer is None:
        raise InvalidInput(f"{question} There is no terminal to ask at", "confirm with `--yes`")
    click.echo(f"{question} [y/N]: {answer}", err=True)
    if answer.lower() not in ("y", "yes"):
        raise InvalidInput("not confirmed; nothing was done", "confirm with `--yes`")


def _piped_answer() -> str | None:
    """The next line of stdin, shortened; None if none comes at once."""
    import select
    import sys

    try:
        if not select.select([sys.stdin], [], [], _PIPED_ANSWER_S)[0]:
            return None
        line = sys.stdin.readline()
    except (OSError, ValueError, TypeError):
        return None  # stdin is closed, or nothing that can be waited for
    return line.strip()[:40] if line else None


def warn(text: str) -> None:
    """Print a warning: something requested was not done."""
    click.secho("warning:", fg="yellow", bold=True, err=True, nl=False)
    click.echo(f" {plain(text)}", err=True)


@contextmanager
def python_warnings_as_lines() -> Iterator[None]:
    """Print what the SDK warns of as `warn` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: warn(str(message))
        yield


def _say_starting() -> None:
    click.echo("Starting this machine's torchyard server…", err=True)
