"""What a cell shows of a job, read from the server.

Owns: which metrics are drawn, how much of the log is read.
Leaves: when to read to follower.py, drawing to the widget and to saved_page.py.
Always: a view is JSON as notebooks take it: NaN and infinities are text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torchyard.base.errors import NotFound
from torchyard.client.printing import rank_of_log

if TYPE_CHECKING:
    from torchyard.client.job_history import ChartLine, MetricSummary
    from torchyard.client.job_reader import RemoteFile

Json = dict[str, Any]

_ENDED = ("Completed", "Failed", "Canceled")
_MOST_LINES = 24
_CHART_WIDTH = 400
_LOG_BYTES = 16_384
_LOG_LINES = 100
_LINE_CHARACTERS = 1_000
_JOB_KEYS = (
    "name", "display_name", "experiment_name", "status", "waiting", "compute", "created_at",
    "started_at", "ended_at", "duration_s", "node_count", "processes_per_node", "stages",
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """A job at one moment.

    Args:
        job: the parts of its JSON that are shown, and `page`, the address of its page.
        charts: `lines`, as the server draws them, and `left_out`, the number of keys without one.
        log: `path`, its last `lines`, and whether some before them `is_cut`.
        metrics: the last value of each key.
        note: why it is not up to date; empty when it is.
    """

    job: Json
    charts: Json = field(default_factory=lambda: {"lines": [], "left_out": 0})
    log: Json = field(default_factory=lambda: {"path": "", "lines": [], "is_cut": False})
    metrics: Json = field(default_factory=dict)
    note: str = ""

    @property
    def has_ended(self) -> bool:
        return self.job["status"] in _ENDED


class Source(Protocol):
    """What the SDK reads of one workspace's jobs; `JobReader` is one."""

    def document(self, name: str) -> Json: ...
    def page(self, name: str) -> str: ...
    def metric_keys(self, name: str) -> Sequence[MetricSummary]: ...
    def chart(self, names: str, keys: list[str], *, width: int) -> Sequence[ChartLine]: ...
    def files(self, name: str) -> Sequence[RemoteFile]: ...
    def read_end(self, name: str, path: str, most_bytes: int) -> bytes: ...


class ViewReader:
    """Reads one job again and again; what did not change is not read again."""

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self.name = name
        self._counts: dict[str, int] = {}
        self._charts: Json = {"lines": [], "left_out": 0}
        self._log_path = ""
        self._log_of: tuple[Any, Any] = (None, None)

    def read(self) -> View:
        """The job as it is now.

        Raises:
            NotFound: no job has this name.
            TorchyardError: what the server answered.
        """
        # It ends after its last point and line: what is read now has both.
        document = self._source.document(self.name)
        error = document.get("error") or None
        job = {key: document.get(key) for key in _JOB_KEYS}
        job["display_name"] = str(job["display_name"] or "")
        job["page"] = self._source.page(self.name)
        job["error"] = error and {key: error.get(key) for key in ("code", "message", "hint")}
        rank = (error or {}).get("details", {}).get("rank")
        return View(
            job=plain(job),
            charts=self._read_charts(),
            log=self._read_log(document.get("attempt"), rank),
            metrics=plain(document.get("metrics") or {}),
        )

    def _read_charts(self) -> Json:
        summaries = self._source.metric_keys(self.name)
        counts = {summary.key: summary.count for summary in summaries}
        if counts != self._counts:
            keys = list(counts)[:_MOST_LINES]
            lines = self._source.chart(self.name, keys, width=_CHART_WIDTH)
            self._charts = {
                "lines": [plain(line.raw) for line in lines],
                "left_out": len(counts) - len(keys),
            }
            self._counts = counts
        return self._charts

    def _read_log(self, attempt: Any, rank: Any) -> Json:
        if self._log_of != (attempt, rank):
            self._log_path, self._log_of = "", (attempt, rank)
        if not self._log_path:
            self._log_path = _log_path(self._source.files(self.name), rank)
        if not self._log_path:
            return {"path": "", "lines": [], "is_cut": False}
        try:
            content = self._source.read_end(self.name, self._log_path, _LOG_BYTES)
        except NotFound:  # another attempt has begun
            self._log_path, content = "", b""
        lines, is_cut = last_lines(content)
        return {"path": self._log_path, "lines": lines, "is_cut": is_cut}


def last_lines(content: bytes) -> tuple[list[str], bool]:
    """The last lines of a log's last bytes, and whether there are some before them."""
    lines = content.decode("utf-8", "replace").removesuffix("\n").split("\n") if content else []
    is_cut = len(content) >= _LOG_BYTES or len(lines) > _LOG_LINES
    if len(content) >= _LOG_BYTES:
        lines = lines[1:] or lines
    return [line[-_LINE_CHARACTERS:] for line in lines[-_LOG_LINES:]], is_cut


def plain(value: Any) -> Any:
    """A copy in which NaN and infinities are text, as in the server's JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _log_path(files: Iterable[RemoteFile], rank: Any) -> str:
    """The log of a rank that has written something; of the first that has, where it has not."""
    ranks = {
        number: file.path
        for file in files
        if file.size_bytes and (number := rank_of_log(file.path)) is not None
    }
    return ranks.get(rank) or (ranks[min(ranks)] if ranks else "")
