"""Experiments of the workspace, over HTTP."""

from __future__ import annotations

from torchyard.answers import Record, Records, Rows
from torchyard.base.http import Transport


class Experiments:
    """Names under which jobs are kept together."""

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = f"{here}/experiments"

    def list(self) -> Rows:
        return Records(Record(row) for row in self._transport.get(self._here)["value"])
