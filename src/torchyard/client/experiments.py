"""Experiments of the workspace, over HTTP."""

from __future__ import annotations

from torchyard.base.http import Transport
from torchyard.client.responses import Record, Records, Rows


class Experiments:
    """Names under which jobs are kept together."""

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = f"{here}/experiments"

    def list(self) -> Rows:
        return Records(Record(row) for row in self._transport.get(self._here)["value"])
