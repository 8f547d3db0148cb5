"""What can go wrong on a node, in words for the user.

Owns: the error object of a `node_exited` event.
Leaves: deciding which node's error is the job's to the server.
Always: a message names the thing, the hint gives the next step; both without a full stop.
"""

from __future__ import annotations


class Failure(Exception):
    """The node can't go on; `code` is stable."""

    def __init__(self, code: str, message: str, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "hint": self.hint}
