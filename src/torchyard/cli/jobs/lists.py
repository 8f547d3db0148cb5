"""`yard job list`: jobs that meet conditions, newest first or as a leaderboard.

Owns: the verb, its columns.
Leaves: selecting and sorting to the server, printing to terminal/tables.py.
Always: what a list is sorted by is one of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import click

from torchyard.base import clock
from torchyard.base.errors import InvalidInput
from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.completion import statuses
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, archivable, common
from torchyard.cli.terminal import tables

_GROUPS = ("metrics", "params", "inputs", "tags")
# Every list has their tags.
_ASKED_FOR = ("metrics", "params", "inputs")


@click.command("list", cls=Verb)
@click.option(
    "--experiment-name", default="", metavar="NAME", help="List only this experiment's jobs."
)
@click.option(
    "--status",
    default="",
    metavar="STATUS",
    help="List only jobs with this status.",
    shell_complete=statuses,
)
@click.option(
    "-p", "--parent-job-name", default="", metavar="NAME", help="List only this job's children."
)
@click.option(
    "--type",
    default=None,
    metavar="TYPE",
    help="List only jobs of this type: command, sweep, pipeline; a run was logged outside a job.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="KEY[=VALUE]",
    help="List only jobs with this tag; repeatable.",
)
@click.option(
    "--text",
    default="",
    metavar="TEXT",
    help="List only jobs with TEXT in their name, display name or description.",
)
@click.option("--owner", default="", metavar="NAME", help="List only this person's jobs.")
@click.option(
    "--since", default="", metavar="TIME", help="List only jobs submitted since: 2d, 2026-12-31."
)
@click.option("--until", default="", metavar="TIME", help="List only jobs submitted before.")
@click.option(
    "--sort",
    default="",
    metavar="COLUMN",
    help="Sort by metrics.NAME, params.NAME, inputs.NAME, tags.NAME, name, display_name, owner, "
    "created_at or duration_s; jobs without a value come last.",
)
@click.option("--descending", "--desc", is_flag=True, help="Sort the largest first.")
@click.option(
    "--columns",
    multiple=True,
    metavar="COLUMN,…",
    help="Columns to add: metrics.NAME, params.NAME, inputs.NAME, tags.NAME; without a NAME all "
    "of them.",
)
@click.option(
    "-r",
    "--max-results",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=50,
    show_default=True,
    help="Maximum number of jobs.",
)
@click.option(
    "--all-results", metavar="true|false", type=bool, default=False, help="List all jobs."
)
@archivable
@common
def list_jobs(
    session: Session,
    tags: tuple[str, ...],
    since: str,
    until: str,
    sort: str,
    columns: tuple[str, ...],
    max_results: int,
    all_results: bool,
    archived: str,
    type: str | None,
    **conditions: Any,
) -> None:
    """List jobs, newest first, or the best first as a leaderboard.

    \b
    Example: yard job list --experiment-name digits -o json
             yard job list --tag sweep=1 --sort metrics.loss --columns inputs
             yard job list --type sweep
             yard job list --owner ann --since 7d --sort metrics.accuracy --desc
    """
    names = _names(columns, sort)
    jobs = session.client().jobs.list(
        **conditions,
        type=type or "",
        tags=_tags(tags),
        created_after=_moment(since),
        created_before=_moment(until),
        sort=sort,
        columns=[*(name for name in names if name.partition(".")[0] in _ASKED_FOR), "waiting"],
        max_results=None if all_results else max_results,
        archived=archived == "too",
        only_archived=archived == "only",
    )
    # Programs get every digit, also with `-o tsv`.
    number = tables.number if session.form.kind == "table" else _full_value
    tables.rows(session.form, jobs.raw, _columns(names, jobs.raw, number))


def _names(columns: Sequence[str], sort: str) -> list[str]:
    """The columns to add, each once, that of the order first."""
    names = [name.strip() for text in columns for name in text.split(",") if name.strip()]
    for name in names:
        group, dot, key = name.partition(".")
        if group not in _GROUPS or (dot and not key):
            raise InvalidInput(
                f"a list of jobs has no column `{name}`",
                "use metrics.NAME, params.NAME, inputs.NAME or tags.NAME; without `.NAME` for all",
            )
    group = sort.partition(".")[0]
    if "." in sort and group in _GROUPS and group not in names:
        names.insert(0, sort)
    return list(dict.fromkeys(names))


def _tags(tags: Sequence[str]) -> dict[str, str | None]:
    filters: dict[str, str | None] = {}
    for tag in tags:
        key, equals, value = tag.partition("=")
        filters[key] = value if equals else None
    return filters


def _moment(text: str) -> datetime | None:
    return clock.from_text(amounts.earlier(text)) if text else None


def _full_value(value: Any) -> Any:
    return value


def _columns(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], number: Callable[[Any], Any]
) -> list[tables.Column]:
    """What people see: the usual columns, or the chosen ones right after the name."""
    shown: list[tables.Column] = [
        ("NAME", lambda job: job["name"]),
        ("STATUS", lambda job: job["status"]),
    ]
    if names:
        shown += [
            (
                f"{group}.{key}" if group != "metrics" else f"last {key}",
                partial(_cell, group, key, number),
            )
            for group, key in _keys(names, rows)
        ]
    else:
        shown.append(("EXPERIMENT", lambda job: job["experiment_name"]))
    if any(job.get("waiting") for job in rows):
        shown.append(("WAITING FOR", lambda job: job.get("waiting")))
    return [
        *shown,
        ("DISPLAY NAME", _display_name),
        ("CREATED", lambda job: tables.moment(job.get("created_at"))),
        ("TOOK", lambda job: tables.since(*map(job.get, ("started_at", "ended_at", "duration_s")))),
    ]


def _keys(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(group, key) of each column; a group stands for all keys that the rows have."""
    keys: list[tuple[str, str]] = []
    for name in names:
        group, dot, key = name.partition(".")
        keys += [(group, key)] if dot else _all_of(group, rows)
    return list(dict.fromkeys(keys))


def _all_of(group: str, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(group, key) for key in sorted({key for row in rows for key in row.get(group) or {}})]


def _cell(group: str, key: str, number: Callable[[Any], Any], row: Mapping[str, Any]) -> Any:
    value = (row.get(group) or {}).get(key)
    return number(value) if isinstance(value, float) else value


def _display_name(job: Mapping[str, Any]) -> str | None:
    """The display name, unless it is just the name."""
    shown: str | None = job.get("display_name")
    return None if shown == job["name"] else shown
