"""People of the server, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client.responses import Record, Records, Rows


class Users:
    """People, their roles and tokens, and what was done.

    Example::

        client.users.create("anna", role="data scientist", workspace="vision")
        token = client.users.create_token("anna", "laptop").token
    """

    def __init__(self, transport: Transport, here: str, workspace: str) -> None:
        self._transport = transport
        self._here = here
        self._workspace = workspace

    def me(self) -> Record:
        """Who one is: `user`, `workspace`, `role`, `token`, `expires_at`."""
        return Record(self._transport.get("/v1/whoami", {"workspace": self._workspace}))

    def list(self) -> Rows:
        answer = self._transport.get("/v1/users")
        return Records(Record(row) for row in answer["value"])

    def get(self, name: str) -> Record:
        return Record(self._transport.get(_of(name)))

    def create(self, name: str, role: str | None = None, workspace: str = "") -> Record:
        """
        Args:
            role: what the person is; None for nothing yet.
            workspace: where; empty for every workspace.

        Raises:
            Conflict: there is one of this name.
        """
        asked = {"name": name, "role": role, "workspace": workspace}
        return Record(self._transport.post("/v1/users", asked))

    def set_role(self, name: str, role: str | None, workspace: str = "") -> Record:
        """None takes the role away; `workspace` empty means every workspace.

        Raises:
            Conflict: nobody would be left who owns the server.
        """
        path = f"{_of(name)}/role"
        if workspace:
            path = f"/v1/workspaces/{quote(workspace, safe='')}/people/{quote(name, safe='')}"
        return Record(self._transport.put(path, {"role": role}))

    def remove(self, name: str, cancel_jobs: bool = False) -> Record:
        """The person's tokens end at once; jobs run on unless they are canceled, too."""
        asked = {"cancel": "true"} if cancel_jobs else None
        return Record(self._transport.delete(_of(name), asked))

    def tokens(self, name: str) -> Rows:
        answer = self._transport.get(f"{_of(name)}/tokens")
        return Records(Record(row) for row in answer["value"])

    def create_token(self, name: str, token: str, expires_at: str | None = None) -> Record:
        """Its text, which is told here and never again, is `token` of the answer."""
        asked = {"name": token, "expires_at": expires_at}
        return Record(self._transport.post(f"{_of(name)}/tokens", asked))

    def revoke_token(self, name: str, token: str) -> None:
        self._transport.delete(f"{_of(name)}/tokens/{quote(token, safe='')}")

    def audit(
        self, user: str = "", since: str = "", limit: int = 100, everywhere: bool = True
    ) -> Rows:
        """What was done, newest first: `at`, `user`, `method`, `path`, `outcome`, `from`.

        Args:
            everywhere: False for this workspace only, which its owners may ask.
        """
        query: dict[str, Any] = {"user": user, "since": since, "limit": limit}
        path = "/v1/audit" if everywhere else f"{self._here}/audit"
        answer = self._transport.get(path, query)
        return Records(Record(row) for row in answer["value"])


def _of(name: str) -> str:
    return f"/v1/users/{quote(name, safe='')}"
