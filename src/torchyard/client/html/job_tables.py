"""Jobs as HTML tables: what a person wants to know of them first.

Owns: which parts of a job are shown, and in which order.
Leaves: live views to torchyard.notebook.
Always: all text is escaped; no style needs a style sheet, and colours are readable on light and
on dark pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from torchyard.shared.plurals import plural

Json = Mapping[str, Any]

_MOST_ROWS = 100
_MOST_METRICS = 12
_MOST_CHARACTERS = 600
_LEFT = "style='text-align:left'"
# Only the dot has a colour; a word stands beside it.
_COLORS = {
    **dict.fromkeys(("Running", "Finalizing", "Starting"), "#3b82f6"),
    "Completed": "#1a9a50",
    **dict.fromkeys(("Failed", "NotResponding"), "#e5484d"),
    **dict.fromkeys(("Canceled", "CancelRequested"), "#80838f"),
}
_WAITING_COLOR = "#b7791f"


def job_table(raw: Json, page: str) -> str:
    """One job, a row for each part that it has.

    Args:
        raw: the server's JSON of the job, or of its row in a list.
        page: the address of its page.
    """
    title = str(raw.get("display_name") or raw["name"])
    rows = [
        ("status", status(raw)),
        ("job", link(page, title)),
        ("name", text(raw["name"]) if title != raw["name"] else ""),
        ("experiment", text(raw.get("experiment_name"))),
        ("compute", text(raw.get("compute"))),
        ("created", _moment(raw.get("created_at"))),
        ("ran for", duration(raw.get("duration_s"))),
        ("waits", text(raw.get("waiting"))),
        ("last values", _metrics(raw.get("metrics"))),
        ("error", _error(raw.get("error"))),
    ]
    lines = "".join(
        f"<tr><th {_LEFT}>{name}</th><td {_LEFT}>{html}</td></tr>" for name, html in rows if html
    )
    return f"<table>{lines}</table>"


def jobs_table(jobs: Sequence[tuple[Json, str]]) -> str:
    """Several jobs, each with the address of its page; only columns that one of them has."""
    rows = [_row(raw, page) for raw, page in jobs[:_MOST_ROWS]]
    columns = list(dict.fromkeys(name for row in rows for name, html in row.items() if html))
    head = "".join(f"<th {_LEFT}>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td {_LEFT}>{row.get(name, '')}</td>" for name in columns) + "</tr>"
        for row in rows
    )
    more = len(jobs) - len(rows)
    foot = f"<p>{more} more {plural('job', more)}</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


def status(raw: Json) -> str:
    """A dot in the status's colour, and the status."""
    word = str(raw.get("status"))
    color = _COLORS.get(word, _WAITING_COLOR)
    return f"<span style='color:{color}'>&#9679;</span> {escape(word)}"


def link(page: str, title: str) -> str:
    """A link to a page of the server; text where the address is not one of HTTP."""
    if not page.startswith(("http://", "https://")):
        return text(title)
    return f"<a href='{escape(page)}' target='_blank' rel='noopener'>{text(title)}</a>"


def text(value: Any) -> str:
    """Escaped, and cut where it is long; JSON where it is not text."""
    if value is None:
        return ""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(shown) > _MOST_CHARACTERS:
        shown = shown[: _MOST_CHARACTERS - 1] + "…"
    return escape(shown)


def number(value: Any) -> str:
    """Six significant digits, escaped; NaN and infinities come as text."""
    return f"{value:.6g}" if isinstance(value, int | float) else text(value)


def duration(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _row(raw: Json, page: str) -> dict[str, str]:
    title = str(raw.get("display_name") or "")
    row = {
        "status": status(raw),
        "name": link(page, str(raw["name"])),
        "display name": text(title) if title != raw["name"] else "",
        "experiment": text(raw.get("experiment_name")),
        "created": _moment(raw.get("created_at")),
        "ran for": duration(raw.get("duration_s")),
    }
    for group in ("metrics", "params", "inputs"):
        values: Json = raw.get(group) or {}
        for key, value in values.items():
            if group == "metrics":
                row[f"last {key}"] = number(value)
            else:
                row[f"{group}.{key}"] = text(value)
    return {**row, "error": _error(raw.get("error"))}


def _metrics(values: Json | None) -> str:
    shown = list((values or {}).items())
    parts = [f"{text(key)} <b>{number(value)}</b>" for key, value in shown[:_MOST_METRICS]]
    more = len(shown) - len(parts)
    return ", ".join([*parts, f"{more} more"] if more else parts)


def _error(error: Json | None) -> str:
    if not error:
        return ""
    return _lines([text(error.get("message")), text(error.get("hint"))])


def _lines(parts: Iterable[str]) -> str:
    return "<br>".join(part.replace("\n", "<br>") for part in parts if part)


def _moment(value: Any) -> str:
    """To the second, in UTC as the server says it."""
    return escape(str(value)[:19].replace("T", " ") + " UTC") if value else ""
