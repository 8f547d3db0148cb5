"""A server without a scheduler, and requests as Azure ML's clients send them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workspaces.served import Served

PROVIDER = "Microsoft.MachineLearningServices"
WORKSPACE = f"/subscriptions/local/resourceGroups/torchyard/providers/{PROVIDER}/workspaces/default"


@dataclass
class Azure:
    """`who` asks."""

    site: Served
    user: str = "dan"

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The response's JSON; None if it is empty.

        Args:
            path: below the workspace, or from the root when it begins with `/subscriptions`.
        """
        answer = self.answer(method, path, body, **query)
        assert answer.status_code in (200, 201), answer.text
        return answer.json() if answer.content else None

    def answer(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        where = path if path.startswith("/subscriptions") else f"{WORKSPACE}/{path}"
        params = {"api-version": "2025-12-01", **query}
        return self.site.ask(self.user, method, where, body, params=params)

    def refused(self, status: int, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The error of Azure's envelope, as clients read it."""
        answer = self.answer(method, path, body, **query)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "target", "details", "additionalInfo"}
        return error

    def put(self, path: str, properties: Mapping[str, Any], **beside: Any) -> Any:
        return self.ask("PUT", path, {"properties": dict(properties), **beside})

    def names(self, path: str, **query: str) -> list[str]:
        return [item["name"] for item in self.ask("GET", path, **query)["value"]]
