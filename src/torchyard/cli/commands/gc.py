"""`yard gc`: free disk space on the server.

Owns: the verb, its sizes and durations, its report.
Leaves: what is removed and what is kept to the server.
Always: it reports what it removed, and with `--explain` why the rest is kept.
"""

from __future__ import annotations

import re
from typing import Any

import click

from torchyard.base.errors import InvalidInput
from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common
from torchyard.cli.terminal import tables
from torchyard.shared.sizes import size_text

_TIMES_S = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
# `--budget none`, as opposed to no `--budget` at all.
_NONE = -1
_OPTIONS = {
    "older_than_s": "--older-than",
    "budget_bytes": "--budget",
    "logs_bytes": "--logs",
    "caches_bytes": "--caches",
}
_COLUMNS: list[tables.Column] = [
    ("ACTION", lambda row: row["action"]),
    ("KIND", lambda row: row["kind"]),
    ("NAME", lambda row: row["name"]),
    ("SIZE", lambda row: size_text(row["size_bytes"])),
    ("REASON", lambda row: row["why"]),
]


class _Size(click.ParamType):  # type: ignore[type-arg]
    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if value == "none":
            return _NONE
        try:
            return amounts.size_bytes(str(value))
        except InvalidInput as error:
            self.fail(f"{error.message}: write `50GB`, or `none`", param, ctx)


class _Time(click.ParamType):  # type: ignore[type-arg]
    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", str(value))
        if match is None:
            self.fail(f"`{value}` is not a duration: write `14d`, `12h` or `30m`", param, ctx)
        return float(match[1]) * _TIMES_S[match[2]]


@click.command("gc", cls=Verb)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--explain", is_flag=True, help="Show the reason for everything removed or kept.")
@click.option(
    "--older-than",
    type=_Time(),
    default=None,
    metavar="TIME",
    help="Remove environments, inputs and caches unused for so long.  [default: 14d]",
)
@click.option(
    "--budget",
    type=_Size(),
    default=None,
    metavar="SIZE",
    help="Keep environments and inputs below SIZE, removing the longest unused first.",
)
@click.option(
    "--logs",
    type=_Size(),
    default=None,
    metavar="SIZE",
    help="Keep logs of ended jobs below SIZE, removing the oldest first.",
)
@click.option(
    "--caches",
    type=_Size(),
    default=None,
    metavar="SIZE",
    help="Clear uv's download cache if it is larger than SIZE.",
)
@click.option(
    "--save",
    is_flag=True,
    help="Remove nothing; save these options for later runs and show them. `none` removes a "
    "budget.",
)
@common
def gc(
    session: Session,
    dry_run: bool,
    explain: bool,
    older_than: float | None,
    budget: int | None,
    logs: int | None,
    caches: int | None,
    save: bool,
) -> None:
    """Free disk space on the server: remove what no job, model or data asset needs.

    Example: yard gc --explain --dry-run
    """
    limits = {
        "older_than_s": older_than,
        "budget_bytes": budget,
        "logs_bytes": logs,
        "caches_bytes": caches,
    }
    options = {
        name: None if value == _NONE else value
        for name, value in limits.items()
        if value is not None
    }
    transport = session.client().transport
    if save:
        if dry_run or explain:
            raise click.UsageError("'--save' removes nothing: omit '--dry-run' and '--explain'.")
        settings: dict[str, Any] = transport.call("PATCH", "/v1/gc/settings", options)
        tables.one(session.form, settings, lambda: _format_settings(settings))
        return
    done: dict[str, Any] = transport.post("/v1/gc", {"dry_run": dry_run, **options})
    items = [row for row in done["things"] if explain or row["action"] != "kept"]
    tables.one(session.form, {**done, "things": items}, lambda: _page(done, items))


def _format_settings(settings: dict[str, Any]) -> str:
    lines = []
    for name, option in _OPTIONS.items():
        value = settings[name]
        shown = "none" if value is None else size_text(value)
        if name == "older_than_s":
            shown = f"{value / _TIMES_S['d']:g}d"
        by = "stored" if name in settings["stored"] else "default"
        lines.append(f"{option:<14}{shown:>16}  ({by})")
    return "\n".join(lines)


def _page(done: dict[str, Any], items: list[dict[str, Any]]) -> str:
    freed = size_text(done["freed_bytes"])
    summary = f"{freed} would be freed." if done["dry_run"] else f"{freed} freed."
    return f"{tables.table_text(items, _COLUMNS)}\n\n{summary}" if items else summary
