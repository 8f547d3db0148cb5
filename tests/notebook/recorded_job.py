"""A job as the SDK reads it, without a server."""

from __future__ import annotations

from typing import Any

from torchyard.base.errors import NotFound
from torchyard.client.job_history import ChartLine, MetricSummary
from torchyard.client.job_reader import RemoteFile
from torchyard.notebook.view import View, ViewReader


def job_body(name: str, status: str = "Completed", **more: Any) -> dict[str, Any]:
    """As a server answers it; `more` replaces what is there."""
    return {
        "name": name,
        "display_name": f"{name}-display",
        "experiment_name": "digits",
        "type": "command",
        "status": status,
        "spec": {"command": "python train.py"},
        "tags": {},
        "properties": {},
        "compute": "local",
        "node_count": 2,
        "processes_per_node": 4,
        "created_at": "2026-01-01T10:00:00.000000Z",
        "started_at": "2026-01-01T10:00:01.000000Z",
        "ended_at": "2026-01-01T10:00:13.300000Z",
        "owner": "ann",
        "attempt": 1,
        "exit_code": 0 if status == "Completed" else None,
        "error": None,
        "waiting": "",
        "stages": [
            {
                "name": "Running",
                "start": "2026-01-01T10:00:01.000000Z",
                "end": "2026-01-01T10:00:13.000000Z",
                "waited_for": "",
            }
        ],
        "notices": [],
        "metrics": {"loss": 0.25},
        "params": {"lr": "0.1"},
        "models": [{"name": "digits", "version": "1"}],
        **more,
    }


class RecordedJob:
    """Answers as `JobReader` does; `requests` counts what was read."""

    def __init__(self, **more: Any) -> None:
        self.body = job_body("brave-otter", "Running", ended_at=None, **more)
        self.points: dict[str, list[float]] = {}
        self.logs: dict[str, bytes] = {}
        self.requests: list[str] = []

    def document(self, name: str) -> dict[str, Any]:
        self.requests.append("document")
        if name != self.body["name"]:
            raise NotFound(f"job `{name}` does not exist")
        return self.body

    def page(self, name: str) -> str:
        return f"https://yard.example/ui/workspaces/default/jobs/{name}"

    def metric_keys(self, name: str) -> list[MetricSummary]:
        self.requests.append("metric_keys")
        return [
            MetricSummary(
                raw={},
                key=key,
                count=len(values),
                min=0.0,
                max=1.0,
                step=len(values),
                timestamp_ms=0,
                value=values[-1],
            )
            for key, values in self.points.items()
        ]

    def chart(self, names: str, keys: list[str], *, width: int) -> list[ChartLine]:
        self.requests.append("chart")
        return [self._line(names, key) for key in keys]

    def files(self, name: str) -> list[RemoteFile]:
        self.requests.append("files")
        return [
            RemoteFile(raw={}, path=path, size_bytes=len(content))
            for path, content in self.logs.items()
        ]

    def read_end(self, name: str, path: str, most_bytes: int) -> bytes:
        self.requests.append("read_end")
        if path not in self.logs:
            raise NotFound(f"job `{name}` has no file `{path}`")
        return self.logs[path][-most_bytes:]

    def view(self) -> View:
        return ViewReader(self, "brave-otter").read()

    def _line(self, job: str, key: str) -> ChartLine:
        points = list(enumerate(self.points[key]))
        raw = {"job": job, "key": key, "count": len(points), "exact": True, "points": points}
        return ChartLine(raw=raw, job=job, key=key, count=len(points), points=points, columns=())
