"""`yard job metrics`: the metrics that jobs logged, as a table, a chart or a file.

Owns: the verb, which lines share a chart, watching a running job.
Leaves: drawing to terminal/plots.py, downsampling to the server.
Always: output that doesn't go to a terminal has no colours and is printed once.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base import settings
from torchyard.base.errors import InvalidInput, NotFound, did_you_mean
from torchyard.base.terminal_text import coloured, plain
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, many_names
from torchyard.cli.terminal import tables
from torchyard.cli.terminal.live_area import redraw

if TYPE_CHECKING:
    from torchyard.cli.terminal.plots import Line, Style
    from torchyard.client.client import Client
    from torchyard.client.job_history import System

_ENDED = ("Completed", "Failed", "Canceled")
_EVERY_S = 2.0
_PLAIN_WIDTH = 80
_HEIGHT, _SMALL_HEIGHT = 18, 10
# Without `--key`, each metric has its own chart, up to this many.
_MOST_CHARTS = 12
_MOST_LINES = 16


class _Step(click.ParamType):  # type: ignore[type-arg]
    """A whole number of 64 bits, whose range the help doesn't print."""

    name = "step"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        return int(click.IntRange(-(2**63), 2**63 - 1).convert(value, param, ctx))


class _WithPlot(Verb):
    """Parse `--plot loss acc` as `--plot --key loss --key acc`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        plotting = False
        for index, argument in enumerate(args):
            if argument == "--":
                return super().parse_args(ctx, spread + args[index:])
            plotting = argument == "--plot" or (plotting and not argument.startswith("-"))
            spread += ["--key", argument] if plotting and argument != "--plot" else [argument]
        return super().parse_args(ctx, spread)


def _offered(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Behind `--plot` the metrics of the jobs named before it, else names of jobs."""
    from torchyard.cli.parsing import completion

    if context.params.get("plot") and _named_jobs(context):
        return _keys(context, parameter, incomplete)
    workspace = str(context.params.get("workspace_name") or "")
    return completion.names("jobs", workspace, incomplete)


def _keys(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The metrics of the first job that is named."""
    from torchyard.cli.parsing import completion

    workspace = str(context.params.get("workspace_name") or "")
    jobs = _named_jobs(context)
    return completion.metric_keys(jobs[0], workspace, incomplete) if jobs else []


def _named_jobs(context: click.Context) -> tuple[str, ...]:
    return (*(context.params.get("name") or ()), *(context.params.get("argument") or ()))


@click.command("metrics", cls=_WithPlot)
@many_names("job", "jobs", _offered)
@click.option(
    "--plot", is_flag=True, help="Draw a chart; `--plot KEY…` draws these metrics into one."
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Show only this metric; repeatable.",
    shell_complete=_keys,
)
@click.option(
    "--x", type=click.Choice(["step", "time"]), default="step", help="The chart's horizontal axis."
)
@click.option("--log", is_flag=True, help="Draw the chart with a logarithmic vertical axis.")
@click.option(
    "--smooth",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    metavar="WEIGHT",
    help="Draw a moving average: 0.9 or so; nearer to 1 is smoother.",
)
@click.option(
    "--from",
    "start",
    type=_Step(),
    default=None,
    metavar="STEP",
    help="First step of a chart or file (with `--x time`, ms since 1970).",
)
@click.option("--to", "end", type=_Step(), default=None, metavar="STEP", help="Last step.")
@click.option(
    "--export",
    default="",
    metavar="FILE",
    help="Write every point to a .csv or .parquet file; of several jobs, with their names.",
)
@click.option("--follow", is_flag=True, help="Update until the jobs have ended.")
@click.option(
    "--system",
    is_flag=True,
    help="Show what nodes and ranks used, too: system/node-0/cpu_utilization_percentage and so on.",
)
@common
def metrics(
    session: Session,
    names: tuple[str, ...],
    plot: bool,
    keys: tuple[str, ...],
    x: str,
    log: bool,
    smooth: float,
    start: int | None,
    end: int | None,
    export: str,
    follow: bool,
    system: bool,
) -> int:
    """Show the metrics that jobs logged: their last values, or a chart of all values.

    \b
    Example: yard job metrics brave-otter
             yard job metrics brave-otter calm-lynx --plot loss val_loss
             yard job metrics brave-otter calm-lynx --export points.csv
    """
    if not names:
        raise click.UsageError("The job name is missing: write it before '--plot'.")
    if export and (plot or follow):
        raise click.UsageError("'--export' writes a file; omit '--plot' and '--follow'.")
    for_programs = session.form.kind != "table" or session.form.query
    if follow and for_programs:
        raise click.UsageError("'--follow' needs table output; omit '-o' and '--query'.")
    if start is not None and end is not None and start > end:
        raise click.UsageError(f"'--from {start}' is after '--to {end}'.")
    if not (plot or export) and (start is not None or end is not None or x != "step"):
        raise click.UsageError("'--from', '--to' and '--x' need '--plot' or '--export'.")
    if (log or smooth) and (not plot or for_programs):
        raise click.UsageError("'--log' and '--smooth' need '--plot' and table output.")
    client = session.client()
    if export:
        return _export(session, client, names, keys, export, x, start, end)
    selection = _Selection(names, keys, x, start, end, log, smooth, system)
    if for_programs:
        _answer(session, client, selection, plot)
        return 0
    if not follow:
        click.echo(coloured(_page(client, selection, plot)), color=_colour())
        return 0
    return _follow(client, selection, plot)


class _Selection:
    """The jobs and metrics to show, and the range of the axis."""

    def __init__(
        self,
        names: Sequence[str],
        keys: Sequence[str],
        x: str,
        start: int | None,
        end: int | None,
        log: bool = False,
        smooth: float = 0.0,
        system: bool = False,
    ) -> None:
        self.log, self.smooth = log, smooth
        self.system: System = "hidden"
        if system or any(key.startswith("system/") for key in keys):
            self.system = "too"
        self.names, self.keys = names, keys
        self.axis: dict[str, Any] = {"x": x, "start": start, "end": end}
        self.by_time = x == "time"


def _export(
    session: Session,
    client: Client,
    names: Sequence[str],
    keys: Sequence[str],
    file: str,
    x: Any,
    start: int | None,
    end: int | None,
) -> int:
    jobs = names[0] if len(names) == 1 else names
    written = client.jobs.export(jobs, Path(file), keys or None, x=x, start=start, end=end)
    tables.files(session.form, [written])
    return 0


def _answer(session: Session, client: Client, selection: _Selection, plot: bool) -> None:
    """Print the table's rows, or a chart's data, for programs."""
    rows = _rows(client, selection)
    if plot:
        keys = selection.keys or sorted({row["key"] for row in rows})
        lines = client.jobs.chart(selection.names, keys, **selection.axis).raw if keys else []
        tables.rows(session.form, tables.for_json(lines), [("JOB", lambda line: line["job"])])
    else:
        # Programs get every digit, also with `-o tsv`.
        tables.rows(session.form, tables.for_json(rows), _columns(selection, lambda value: value))


def _columns(selection: _Selection, number: Callable[[Any], Any]) -> list[tables.Column]:
    columns: list[tables.Column] = [
        ("KEY", lambda row: row["key"]),
        ("LAST", lambda row: number(row["value"])),
        ("STEP", lambda row: row["step"]),
        ("MIN", lambda row: number(row["min"])),
        ("MAX", lambda row: number(row["max"])),
        ("COUNT", lambda row: row["count"]),
    ]
    return columns if len(selection.names) == 1 else [("JOB", lambda row: row["job"]), *columns]


def _rows(client: Client, selection: _Selection) -> list[dict[str, Any]]:
    """The summaries of the selected keys, by job.

    Raises:
        NotFound: no job has such a key.
    """
    summaries = [
        {"job": name, **row}
        for name in selection.names
        for row in client.jobs.metric_keys(name, system=selection.system).raw
    ]
    logged_keys = sorted({row["key"] for row in summaries})
    table_keys = [table["key"] for table in _tables(client, selection)] if selection.keys else []
    for key in selection.keys:
        if key in table_keys:
            continue
        if key not in logged_keys:
            shown = ", ".join(f"`{logged_key}`" for logged_key in logged_keys[:20])
            raise NotFound(
                f"no metric `{key}` was logged by {' or '.join(f'`{n}`' for n in selection.names)}",
                did_you_mean(key, logged_keys, f"metrics: {shown or 'none yet'}"),
            )
    rows = [row for row in summaries if not selection.keys or row["key"] in selection.keys]
    if len(selection.names) == 1:
        for row in rows:
            del row["job"]
    return rows


def _tables(client: Client, selection: _Selection) -> list[dict[str, Any]]:
    """What SDK v1 logged as tables, lists and rows, of the selected keys."""
    return [
        {"job": name, **table}
        for name in selection.names
        for table in client.jobs.metric_tables(name)
        if not selection.keys or table["key"] in selection.keys
    ]


def _table_text(table: Mapping[str, Any]) -> str:
    columns = [_column(name) for name in table["columns"]]
    count, shown = table["count"], len(table["rows"])
    rest = f", the first {shown} of {count} rows" if shown < count else ""
    heading = f"{plain(table['key'])} (job {table['job']}{rest})"
    return f"{heading}\n{tables.table_text(table['rows'], columns)}"


def _column(name: str) -> tables.Column:
    return plain(name), lambda row: _cell(row.get(name))


def _cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(tables.number(value)) if is_number else plain(str(value))


def _page(client: Client, selection: _Selection, plot: bool, most_lines: int = 0) -> str:
    """The table or charts, for people."""
    rows = _rows(client, selection)
    logged_tables = [] if plot else [_table_text(table) for table in _tables(client, selection)]
    if not rows and not logged_tables:
        return "There are no metrics yet."
    if not plot:
        numbers = [tables.table_text(rows, _columns(selection, tables.number))] if rows else []
        return "\n\n".join([*numbers, *logged_tables])
    if selection.keys:
        return _chart(client, selection, list(selection.keys), _height(most_lines, 1))
    keys = list(dict.fromkeys(row["key"] for row in rows))
    shown = keys[:_MOST_CHARTS]
    height = _height(most_lines, len(shown)) if len(shown) == 1 else _SMALL_HEIGHT
    charts = [_chart(client, selection, [key], height) for key in shown]
    if len(keys) > len(shown):
        charts.append(f"{len(keys) - len(shown)} more: name them, for example `--plot {keys[-1]}`")
    return "\n\n".join(charts)


def _height(most_lines: int, charts: int) -> int:
    return max(min(_HEIGHT, most_lines or _HEIGHT), 8)


def _chart(client: Client, selection: _Selection, keys: list[str], height: int) -> str:
    from torchyard.cli.terminal import plots

    if len(keys) * len(selection.names) > _MOST_LINES:
        raise InvalidInput(
            f"{len(keys) * len(selection.names)} lines are too many for one chart",
            f"name fewer jobs or metrics: at most {_MOST_LINES} lines",
        )
    width = _chart_width()
    chart_lines = client.jobs.chart(list(selection.names), keys, width=2 * width, **selection.axis)
    lines = [
        plots.Line(
            _label(line.job, line.key, selection, keys),
            [(point[0], point[1], point[-1]) for point in line.columns or line.points],
        )
        for line in chart_lines
    ]
    unit = ""
    if selection.by_time:
        span = max(
            (line.columns[-1][0] - line.columns[0][0] for line in lines if line.columns), default=0
        )
        unit, size = plots.time_unit(span / 1000)
        lines = [_since_start(line, 1000 * size) for line in lines]
    if selection.smooth:
        lines = [plots.smoothed(line, selection.smooth) for line in lines]
    style = replace(chart_style(height), log=selection.log)
    return plots.draw(lines, style, keys[0] if len(keys) == 1 else "", unit)


def chart_style(height: int = _SMALL_HEIGHT) -> Style:
    """How this terminal draws charts."""
    from torchyard.cli.terminal import plots

    return plots.Style(_chart_width(), height, colour=_colour(), braille=_speaks_braille())


def _chart_width() -> int:
    width = shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns
    return min(width, 200) if sys.stdout.isatty() else _PLAIN_WIDTH


def _since_start(line: Line, unit_ms: float) -> Line:
    """The line with times relative to its start, so that runs can be compared."""
    from torchyard.cli.terminal import plots

    first = line.columns[0][0] if line.columns else 0
    return plots.Line(
        line.label, [((x - first) / unit_ms, low, high) for x, low, high in line.columns]
    )


def _label(job: str, key: str, selection: _Selection, keys: list[str]) -> str:
    if len(selection.names) == 1:
        return key
    return job if len(keys) == 1 else f"{job} {key}"


def _follow(client: Client, selection: _Selection, plot: bool) -> int:
    """Redraw in place every two seconds until the jobs have ended."""

    def page() -> tuple[str, bool]:
        states = {name: client.jobs.get(name).status for name in selection.names}
        rows = shutil.get_terminal_size((_PLAIN_WIDTH, 24)).lines
        statuses = "  ".join(f"{name} {tables.status(s)}" for name, s in states.items())
        text = f"{_watched(client, selection, plot, rows - 3)}\n{statuses}"
        return text, all(status in _ENDED for status in states.values())

    return 0 if redraw(page, _EVERY_S, _colour()) else 130


def _watched(client: Client, selection: _Selection, plot: bool, most_lines: int) -> str:
    try:
        text = _page(client, selection, plot, most_lines)
    except NotFound:
        # The metric may be logged later.
        text = "There are no such metrics yet."
    lines = text.split("\n")
    return "\n".join(lines[: max(most_lines, 5)]) if sys.stdout.isatty() else text


def _colour() -> bool:
    return sys.stdout.isatty() and not settings.without_colour()


def _speaks_braille() -> bool:
    try:
        "⣿┤".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
