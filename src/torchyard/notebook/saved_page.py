"""A job as HTML that needs neither a kernel nor a server: what a saved notebook shows of it.

Owns: its looks.
Leaves: the table of the job to client/html/job_tables.py.
Always: text is escaped; drawings are images, in which nothing runs; what notebooks take out of
HTML that they don't trust (style sheets) is not needed to read it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torchyard.client.html import job_tables
from torchyard.notebook.view import View

_WIDTH, _HEIGHT, _MARGIN = 260, 56, 3
_COLOR = "#3b82f6"
_LEFT = "style='text-align:left'"
# Of terminals: colours, titles, movements of the cursor.
_CONTROL = re.compile(
    "\x1b(?:\\[[0-9;:?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -/]*[0-~])"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def saved_page(view: View, ident: str) -> str:
    """The job as it was last seen.

    Args:
        ident: of the widget that shows the job while there is a kernel; letters and digits.
    """
    # Where the widget is not there, notebooks say so in its place: this page stands for it.
    widget = f".jp-OutputArea-child:has(.torchyard-saved-{ident}) + .jp-OutputArea-child"
    style = f"<style>{widget}:not(:has(.torchyard-run)) {{ display: none; }}</style>"
    raw = {**view.job, "metrics": {}}
    parts = [
        style,
        job_tables.job_table(raw, str(view.job.get("page") or "")),
        _stages(view.job.get("stages") or ()),
        _metrics(view),
        _log(view.log),
        f"<p><em>{job_tables.text(view.note)}</em></p>" if view.note else "",
    ]
    return f"<div class='torchyard-saved torchyard-saved-{ident}'>{''.join(parts)}</div>"


def _stages(stages: Iterable[Mapping[str, Any]]) -> str:
    words = [
        f"{job_tables.text(stage.get('name'))} {job_tables.duration(stage.get('duration_s'))}"
        for stage in stages
    ]
    return f"<p>{' &rarr; '.join(word.strip() for word in words)}</p>" if words else ""


def _metrics(view: View) -> str:
    lines = {line["key"]: line for line in view.charts["lines"]}
    rows = "".join(
        f"<tr><th {_LEFT}>{job_tables.text(key)}</th>"
        f"<td {_LEFT}>{job_tables.number(value)}</td>"
        f"<td>{_chart(key, lines[key]) if key in lines else ''}</td></tr>"
        for key, value in view.metrics.items()
    )
    return f"<table>{rows}</table>" if rows else ""


def _chart(key: str, line: Mapping[str, Any]) -> str:
    """A small picture of one line; the mean of each column where there are many points."""
    points = [(x, value) for x, *values in _columns(line) if (value := _mean(values)) is not None]
    if len(points) < 2:
        return ""
    xs, ys = zip(*points, strict=True)
    left, right, bottom, top = min(xs), max(xs), min(ys), max(ys)
    path = " ".join(
        f"{_to_pixels(x, left, right, _WIDTH):.1f},"
        f"{_HEIGHT - _to_pixels(y, bottom, top, _HEIGHT):.1f}"
        for x, y in points
    )
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{_HEIGHT}'>"
        f"<polyline points='{path}' fill='none' stroke='{_COLOR}' stroke-width='1.5'/></svg>"
    )
    data = base64.b64encode(svg.encode()).decode()
    alt = f"from {job_tables.number(ys[0])} to {job_tables.number(ys[-1])}"
    source = f"data:image/svg+xml;base64,{data}"
    return f"<img alt='{alt}' width='{_WIDTH}' height='{_HEIGHT}' src='{source}'>"


def _columns(line: Mapping[str, Any]) -> Iterable[Any]:
    return line.get("points") or line.get("columns") or ()


def _mean(values: Iterable[Any]) -> float | None:
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) / len(numbers) if numbers else None


def _to_pixels(value: float, low: float, high: float, size: int) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return _MARGIN + share * (size - 2 * _MARGIN)


def _log(log: Mapping[str, Any]) -> str:
    if not log["lines"]:
        return ""
    from html import escape

    shown = "\n".join(_CONTROL.sub("", _last_state(line)) for line in log["lines"])
    title = f"{log['path']}, its last {len(log['lines'])} lines" if log["is_cut"] else log["path"]
    summary = f"<summary>{job_tables.text(title)}</summary>"
    return f"<details open>{summary}<pre>{escape(shown)}</pre></details>"


def _last_state(line: str) -> str:
    """What a line shows in the end that carriage returns began again, as progress bars do."""
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")
