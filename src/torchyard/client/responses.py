"""What the server answers: dicts that also have attributes, and show themselves in a notebook.

Owns: the shapes of a job, a file, a list, as the native API writes them; their HTML.
Leaves: asking to client/.
Always: an answer is the dict that came, whole, whatever keys it has; annotations only say which
ones are known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, SupportsIndex, TypedDict, TypeVar, overload

_SHOWN_CHARACTERS = 300


class Record(dict[str, Any]):
    """One thing of the workspace; `job.status` and `job["status"]` are the same."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"it has no `{name}`; it has: {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def to_dict(self) -> dict[str, Any]:
        """A plain dict, as it came."""
        return dict(self)

    def _repr_html_(self) -> str:
        from html import escape

        lines = "".join(
            f"<tr><th style='text-align:left'>{escape(key)}</th>"
            f"<td style='text-align:left'>{_html_of(value)}</td></tr>"
            for key, value in self._shown()
        )
        return f"<table>{lines}</table>"

    def _shown(self) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in self.items() if value not in (None, "", [], {})]


Item = TypeVar("Item", bound=Record)


class Records(list[Item]):
    """A list of them."""

    columns: Sequence[str] = ("name", "version", "type", "status", "description", "created_at")

    @overload
    def __getitem__(self, at: SupportsIndex) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Records[Item]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Item | Records[Item]:
        found = super().__getitem__(at)
        return Records(found) if isinstance(found, list) else found

    def to_dicts(self) -> list[dict[str, Any]]:
        return [record.to_dict() for record in self]

    def _repr_html_(self) -> str:
        from html import escape

        known = {key for record in self for key in record}
        wanted = [key for key in (*self.columns, "experiment_name") if key in known]
        columns = wanted or sorted(known)
        head = "".join(f"<th>{escape(key)}</th>" for key in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_html_of(record.get(key))}</td>" for key in columns) + "</tr>"
            for record in self
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Stage(TypedDict):
    """One of Preparing, Scaling, Running, Post-Processing; times in ISO 8601."""

    name: str
    start: str | None
    end: str | None
    waited_for: str


class _Details(TypedDict, total=False):
    details: dict[str, Any]


class JobError(_Details):
    """`details`, where a job is shown by itself: rank, node, signal, traceback, log_lines, …"""

    code: str
    message: str
    hint: str


class JobSummary(Record):
    """A job as a list shows it."""

    name: str
    display_name: str
    experiment_name: str
    type: str
    status: str
    tags: dict[str, str]
    properties: dict[str, str]
    compute: str
    node_count: int
    processes_per_node: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    owner: str
    attempt: int
    exit_code: int | None
    error: JobError | None


class Job(JobSummary):
    """A job by itself. `metrics` holds the last value of each key."""

    spec: dict[str, Any]
    waiting: str
    stages: list[Stage]
    notices: list[str]
    metrics: dict[str, Any]
    params: dict[str, str]
    models: list[dict[str, Any]]

    def _shown(self) -> list[tuple[str, Any]]:
        last = ("spec", "stages")
        return [pair for pair in super()._shown() if pair[0] not in last]


class RemoteFile(TypedDict):
    """A file of a job, a model or a data asset; `path` has forward slashes."""

    path: str
    size_bytes: int


class OutputFile(RemoteFile):
    """A file of a named output."""

    output: str


Rows = Records[Record]
RemoteFiles = list[RemoteFile]
OutputFiles = list[OutputFile]
Paths = list[Path]


def _html_of(value: Any) -> str:
    from html import escape

    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _SHOWN_CHARACTERS:
        text = text[: _SHOWN_CHARACTERS - 1] + "…"
    return escape(text)
