"""Quotas of a workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.base.http import Transport
from torchyard.client.responses import Record, Records, Rows


class Quotas:
    """Limits on nodes, gpus, cores, jobs, run_time_s and storage_bytes, and asking for more."""

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = here

    def list(self) -> Rows:
        """`user` is a name, `*` for each person, empty for the whole workspace."""
        answer = self._transport.get(f"{self._here}/quotas")
        return Records(Record(row) for row in answer["value"])

    def set(self, limits: Mapping[str, int | None], user: str = "") -> Rows:
        """None takes a limit away."""
        asked = {"user": user, "limits": dict(limits)}
        answer = self._transport.put(f"{self._here}/quotas", asked)
        return Records(Record(row) for row in answer["value"])

    def request(self, name: str, most: int, reason: str = "") -> Record:
        asked = {"name": name, "most": most, "reason": reason}
        return Record(self._transport.post(f"{self._here}/quota-requests", asked))

    def requests(self) -> Rows:
        answer = self._transport.get(f"{self._here}/quota-requests")
        return Records(Record(row) for row in answer["value"])

    def answer(self, request_id: str, approve: bool, words: str = "") -> Record:
        verb = "approve" if approve else "deny"
        path = f"{self._here}/quota-requests/{request_id}/{verb}"
        return Record(self._transport.post(path, {"answer": words}))
