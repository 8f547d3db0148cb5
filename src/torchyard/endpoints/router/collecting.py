"""Inputs and outputs of requests, kept as JSON lines.

Owns: which requests are kept, in which collections, their lines.
Leaves: the files and their limits to collected_files.py; making data assets of them to the server.
Always: a request never waits for the disk; what the disk can't take is dropped and counted; a
router that is killed loses what waits in memory, at most 1000 requests or 64 MiB.

The lines are CloudEvents with the names of Azure's data collector; all lines of a request have its
id as `correlationid`. `model_inputs` and `request` hold its body, `model_outputs` and `response`
the answer's; other collections are the scoring script's own.
"""

from __future__ import annotations

import base64
import json
import logging
import queue
import random
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torchyard.endpoints.router.collected_files import CollectedFiles
from torchyard.endpoints.router.table import Collect

INPUTS = ("model_inputs", "request")
OUTPUTS = ("model_outputs", "response")
MOST_BYTES = 1 << 20
"""Of one body; a longer one is kept without its content."""
_MOST_QUEUED = 1000
_MOST_QUEUED_BYTES = 64 << 20
_log = logging.getLogger(__name__)


class Sample:
    """One request that is kept, in those of its deployment's collections that `names` says."""

    def __init__(
        self,
        collect: Collect,
        names: Sequence[str],
        source: str,
        request_id: str,
        media_type: bytes,
    ) -> None:
        self.collect = collect
        self.names = names
        self.source = source
        self.request_id = request_id
        self.input_type = media_type
        self.output_type = b""
        self.input: list[bytes] | None = []
        self.output: list[bytes] | None = []
        self.size_bytes = 0
        self.at = datetime.now(timezone.utc)

    def add_input(self, data: bytes) -> None:
        self.input = self._add(self.input, data)

    def add_output(self, data: bytes) -> None:
        self.output = self._add(self.output, data)

    def _add(self, parts: list[bytes] | None, data: bytes) -> list[bytes] | None:
        if parts is None or sum(map(len, parts)) + len(data) > MOST_BYTES:
            return None
        self.size_bytes += len(data)
        return [b"".join(parts) + data] if len(parts) > 16 else [*parts, data]


class Collector:
    """Writes samples from a thread of its own."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[Sample, Callable[[bool], None]] | None] = queue.Queue(
            _MOST_QUEUED
        )
        self._queued_bytes = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_failed = False
        self._files: dict[str, CollectedFiles] = {}

    def sample(
        self, collect: Collect, source: str, request_id: str, media_type: bytes
    ) -> Sample | None:
        """A sample for this request, if it is one of those that are kept."""
        # One number for all: input and answer of a request are kept together.
        chance = random.random()
        names = [
            name
            for name in (*INPUTS, *OUTPUTS)
            if name in collect.sampling and chance < collect.sampling[name]
        ]
        return Sample(collect, names, source, request_id, media_type) if names else None

    def write(self, sample: Sample, report: Callable[[bool], None]) -> None:
        """Write it later; `report` hears, in another thread, whether it is written."""
        with self._lock:
            is_full = self._queued_bytes + sample.size_bytes > _MOST_QUEUED_BYTES
            if not is_full:
                self._queued_bytes += sample.size_bytes
        if is_full:
            report(False)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="collecting", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((sample, report))
        except queue.Full:
            self._forget(sample)
            report(False)

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout_s)

    def _forget(self, sample: Sample) -> None:
        with self._lock:
            self._queued_bytes -= sample.size_bytes

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            sample, report = entry
            try:
                self._write(sample)
                self._has_failed = False
                report(True)
            except OSError as error:
                if not self._has_failed:
                    self._has_failed = True
                    _log.error("collected data can't be written: %s", error)
                report(False)
            self._forget(sample)

    def _write(self, sample: Sample) -> None:
        collect = sample.collect
        files = self._files.get(collect.folder)
        if files is None:
            files = self._files[collect.folder] = CollectedFiles(Path(collect.folder))
        for name in sample.names:
            is_input = name in INPUTS
            parts = sample.input if is_input else sample.output
            media_type = sample.input_type if is_input else sample.output_type
            line = json.dumps(_event(sample, name, parts, media_type)).encode() + b"\n"
            files.append(name, sample.at, line, collect.rolling, collect.max_bytes)


def _event(
    sample: Sample, name: str, parts: list[bytes] | None, media_type: bytes
) -> dict[str, Any]:
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": f"{sample.request_id}-{name}",
        "source": sample.source,
        "type": f"azureml.inference.{name}",
        "time": sample.at.isoformat(),
        "correlationid": sample.request_id,
        "xrequestid": sample.request_id,
        "datacontenttype": media_type.decode("latin-1") or "application/json",
    }
    if parts is None:
        return {**event, "truncated": True}
    content = b"".join(parts)
    try:
        return {**event, "data": json.loads(content)}
    except (ValueError, RecursionError):
        pass
    try:
        return {**event, "datacontenttype": "text/plain", "data": content.decode()}
    except UnicodeDecodeError:
        return {**event, "data_base64": base64.b64encode(content).decode()}
