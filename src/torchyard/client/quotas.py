"""Quotas of a workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Quota(Resource):
    """A limit.

    Args:
        user: whose; `*` for each person, empty for the whole workspace.
        name: `nodes`, `gpus`, `cores`, `jobs`, `run_time_s` or `storage_bytes`.
        used: None where it is not counted.
    """

    user: str
    name: str
    most: int
    used: int | None
    set_by: str
    set_at: datetime

    _shown = ("user", "name", "most", "used")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class QuotaRequest(Resource):
    """What a person has asked the workspace's owners for.

    Args:
        state: `asked`, `approved` or `denied`.
        owners: who can answer; of a new request only.
    """

    id: str
    user: str
    name: str
    most: int
    reason: str
    state: str
    answer: str
    asked_at: datetime
    owners: tuple[str, ...]

    _shown = ("id", "user", "name", "most", "state")


class Quotas:
    """Limits on nodes, gpus, cores, jobs, run_time_s and storage_bytes, and asking for more."""

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport = transport
        self._workspace_path = workspace_path

    def list(self) -> Listing[Quota]:
        """Every limit that you may see, with what is used of it."""
        response = self._transport.get(f"{self._workspace_path}/quotas")
        return Listing(_quota(row) for row in response["value"])

    def set(self, limits: Mapping[str, int | None], user: str = "") -> Listing[Quota]:
        """Set limits; None removes one.

        Args:
            limits: by name.
            user: whose; `*` for each person, empty for the whole workspace.

        Raises:
            Forbidden: you are not an owner of the workspace.
        """
        body = {"user": user, "limits": dict(limits)}
        response = self._transport.put(f"{self._workspace_path}/quotas", body)
        return Listing(_quota(row) for row in response["value"])

    def request(self, name: str, limit: int, reason: str = "") -> QuotaRequest:
        """Ask the workspace's owners for more."""
        body = {"name": name, "most": limit, "reason": reason}
        return _request(self._transport.post(f"{self._workspace_path}/quota-requests", body))

    def requests(self) -> Listing[QuotaRequest]:
        """What was requested, newest first."""
        response = self._transport.get(f"{self._workspace_path}/quota-requests")
        return Listing(_request(row) for row in response["value"])

    def answer(self, request_id: str, approve: bool, words: str = "") -> QuotaRequest:
        """Approve or deny a request.

        Raises:
            NotFound: the request does not exist.
            Forbidden: you are not an owner of the workspace.
        """
        verb = "approve" if approve else "deny"
        path = f"{self._workspace_path}/quota-requests/{request_id}/{verb}"
        return _request(self._transport.post(path, {"answer": words}))


def _quota(raw: Json) -> Quota:
    return Quota(
        raw=raw,
        user=raw["user"],
        name=raw["name"],
        most=raw["most"],
        used=raw["used"],
        set_by=raw["set_by"],
        set_at=read.moment(raw, "set_at"),
    )


def _request(raw: Json) -> QuotaRequest:
    return QuotaRequest(
        raw=raw,
        id=read.text(raw, "id"),
        user=raw["user"],
        name=raw["name"],
        most=raw["most"],
        reason=read.text(raw, "reason"),
        state=raw["state"],
        answer=read.text(raw, "answer"),
        asked_at=read.moment(raw, "asked_at"),
        owners=read.texts(raw, "owners"),
    )
