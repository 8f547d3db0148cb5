"""What can go wrong on a node, as users see it.

Owns: the error object of a `node_exited` event.
Leaves: deciding which node's error is the job's to the server.
Always: a message names the thing, the hint gives the next step; both without a full stop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

STOPPED_EXIT = 143
"""The exit code of a node that was stopped, as a shell's for SIGTERM."""


class Failure(Exception):
    """The node can't go on; `code` is stable, `details` are for programs."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        exit_code: int = 1,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        self.details = dict(details or {})

    def to_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        content = {**body, "details": self.details} if self.details else body
        # What programs print may hold what JSON and databases refuse: half a character, NUL.
        text = json.dumps(content, ensure_ascii=False).replace("\\u0000", "?")
        plain: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
        return plain
