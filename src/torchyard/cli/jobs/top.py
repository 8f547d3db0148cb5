"""`yard job top`: what the nodes and ranks of running jobs use.

Owns: the verb, its table, redrawing it.
Leaves: the figures to the worker, which samples them; requests to client/.
Always: output that doesn't go to a terminal is printed once.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, names_of
from torchyard.cli.terminal import tables
from torchyard.cli.terminal.live_area import redraw
from torchyard.client.times import duration
from torchyard.shared.sizes import size_text

if TYPE_CHECKING:
    from torchyard.client.client import Client

_EVERY_S = 2.0
_ENDED = ("Completed", "Failed", "Canceled")
# The end says that the script logs that key, too.
_KEY = re.compile(
    r"system/(?:node-(?P<node>\d+)|rank-(?P<rank>\d+))/(?P<name>.+?)(?: \(sampled\))?\Z"
)
_GPU = re.compile(r"gpu_(\d+)_(utilization_percentage|memory_usage_megabytes)\Z")
_NONE = "No resource use is known yet: sampling starts a few seconds after the ranks."
_NO_JOBS = "No job is running."


@click.command("top", cls=Verb)
@click.argument("argument", metavar="[NAME]", required=False, shell_complete=names_of("jobs"))
@click.option(
    "-n",
    "--name",
    default=None,
    help="Job name. Default: all running jobs.",
    shell_complete=names_of("jobs"),
)
@common
def top(session: Session, argument: str | None, name: str | None) -> int:
    """Show what the nodes and ranks of a job use: CPU, memory, GPUs, disk, network.

    On a terminal the table is updated until the job has ended. CPU counts in percent of one core;
    of the machine, in percent of all its cores.

    \b
    Example: yard job top brave-otter
             yard job top -o json
    """
    if argument and name and argument != name:
        raise click.UsageError(f"Two names were given, '{name}' and '{argument}'.")
    parent = name or argument or ""
    client = session.client()
    for_people = session.form.kind == "table" and not session.form.query
    if for_people and sys.stdout.isatty():
        return _follow(client, parent)
    rows = _rows(client, _jobs(client, parent))
    if for_people and not rows:
        click.echo(_NONE if parent else _NO_JOBS, err=True)
        return 0
    tables.rows(session.form, tables.for_json(rows), _columns(rows, not parent))
    return 0


def _jobs(client: Client, name: str) -> list[dict[str, Any]]:
    if name:
        return [client.jobs.get(name).raw]
    return list(client.jobs.list(status="Running", max_results=None).raw)


def _rows(client: Client, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each job a row per node, and after it one per rank on it."""
    rows: list[dict[str, Any]] = []
    for job in jobs:
        summaries = client.jobs.metric_keys(job["name"], system="only").raw
        rows += _rows_of(job, summaries)
    return rows


def _rows_of(
    job: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    per_node = job.get("processes_per_node") or 1
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for summary in summaries:
        match = _KEY.match(summary["key"])
        if match is None:
            continue
        rank = None if match["rank"] is None else int(match["rank"])
        node = int(match["node"]) if rank is None else rank // per_node
        row = rows.setdefault(
            (node, -1 if rank is None else rank),
            {"job": job["name"], "node": node, "rank": rank, "sampled_ms": 0},
        )
        row["sampled_ms"] = max(row["sampled_ms"], summary["timestamp"])
        row[match["name"]] = summary["value"]
        if match["name"] in ("job_memory_usage_megabytes", "process_memory_rss_megabytes"):
            row["peak_memory_megabytes"] = summary["max"]
    return [rows[key] for key in sorted(rows)]


def _columns(rows: Sequence[Mapping[str, Any]], with_job: bool) -> list[tables.Column]:
    """The columns that any of the rows fills."""
    columns: list[tables.Column] = [
        ("NODE", lambda row: row["node"]),
        ("RANK", lambda row: row["rank"]),
        ("CPU", _share("process_cpu_percentage", "job_cpu_percentage")),
        ("MEMORY", _size("process_memory_rss_megabytes", "job_memory_usage_megabytes")),
        ("PEAK", _size("peak_memory_megabytes")),
        ("GPU", lambda row: _gpus(row, "utilization_percentage", _percent)),
        ("GPU MEMORY", lambda row: _gpus(row, "memory_usage_megabytes", _megabytes)),
        ("MACHINE CPU", _share("cpu_utilization_percentage")),
        ("MACHINE MEMORY", _share("system_memory_usage_percentage")),
        ("DISK FREE", _size("disk_available_megabytes")),
        ("RECEIVED", _size("network_receive_megabytes")),
        ("SENT", _size("network_transmit_megabytes")),
        ("AGE", lambda row: duration(max(0.0, time.time() - row["sampled_ms"] / 1000))),
    ]
    if with_job:
        columns.insert(0, ("JOB", lambda row: row["job"]))
    always = ("NODE", "RANK", "CPU", "MEMORY")
    return [
        column
        for column in columns
        if column[0] in always or any(column[1](row) not in (None, "") for row in rows)
    ]


def _share(*names: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: next((_percent(row[name]) for name in names if name in row), "")


def _size(*names: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: next((_megabytes(row[name]) for name in names if name in row), "")


def _gpus(row: Mapping[str, Any], name: str, say: Callable[[float], str]) -> str:
    """Of every GPU, in their order."""
    values = {
        int(match[1]): row[key]
        for key in row
        if (match := _GPU.match(key)) is not None and match[2] == name
    }
    return ", ".join(say(values[gpu]) for gpu in sorted(values))


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _megabytes(value: float) -> str:
    return size_text(value * 1e6)


def _follow(client: Client, name: str) -> int:
    """Redraw in place until the job has ended, or until Ctrl-C."""

    def page() -> tuple[str, bool]:
        jobs = _jobs(client, name)
        text = _page(jobs, _rows(client, jobs), name)
        return text, bool(name) and jobs[0]["status"] in _ENDED

    redraw(page, _EVERY_S)
    return 0


def _page(jobs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """As many lines as the terminal has room for."""
    if not jobs:
        return _NO_JOBS
    text = tables.table_text(rows, _columns(rows, not name)) if rows else _NONE
    lines = text.split("\n")[: max(shutil.get_terminal_size().lines - 3, 5)]
    if name:
        lines.append(f"{name} {tables.status(jobs[0]['status'])}")
    return "\n".join(lines)
