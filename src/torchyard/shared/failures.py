"""What can go wrong on a node, as users see it.

Owns: the error object of a `node_exited` event.
Leaves: deciding which node's error is the job's to the server.
Always: a message names the thing, the hint gives the next step; both without a full stop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

STOPPED_EXIT = 143
"""The exit code of a node that was stopped, as a shell's for SIGTERM."""


PEER_LOST = "peer_lost"
"""A lost connection tells least of why: whatever else a rank that waited says is more."""
RENDEZVOUS_FAILED = "rendezvous_failed"
RENDEZVOUS_TIMEOUT = "rendezvous_timeout"
_TIMEOUTS = ("collective_timeout", RENDEZVOUS_TIMEOUT)
WAITED_IN_VAIN = (PEER_LOST, *_TIMEOUTS, RENDEZVOUS_FAILED)
"""Failures of a rank that waits for one that does not come."""

_TERMINATED = "terminated"
_PLACE = re.compile(r" \([^()]{1,400} line \d{1,9}[^()]{0,200}\)\Z")
# In this time a launcher that terminates its ranks lets the failed one end, too.
_LAUNCHER_S = 5.0
_EARLY_EXIT_HINT = (
    "all ranks must make the same collective calls: check that rank for fewer batches than the "
    "others have, and for `sys.exit(0)`, `os._exit(0)` or a `return` before the end"
)


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


def with_early_exit(failure: Failure, early: Mapping[str, Any]) -> Failure:
    """The failure of a rank that waited, naming the one that had left.

    Args:
        early: its `rank`, `node`, `exit_code` and time `at`; `error` if it hid one, `where` it
            called for its end.
    """
    why = f", after {early['error']}" if early.get("error") else ""
    # What the other one says of a lost connection would only lead astray.
    waited, _, said = failure.message.partition(": ")
    place = _PLACE.search(said)
    message = (
        f"rank {early['rank']} on node {early['node']} exited with code {early['exit_code']} at "
        f"{str(early['at'])[11:19]} UTC{early.get('where') or ''}{why}, while other ranks still "
        f"waited for it: {waited}{place[0] if place else ''}"
    )
    details = {**failure.details, "early_exit": dict(early), "ended": failure.message}
    return Failure(failure.code, message, _EARLY_EXIT_HINT, failure.exit_code, details)


def vagueness(code: str) -> int:
    """How little a failure tells of why; the one that tells most is the cause of the others."""
    return 2 if code == PEER_LOST else int(code in _TIMEOUTS)


def may_have_terminated(code: str, other_code: str, later_s: float) -> bool:
    """Whether a launcher such as mpirun may have ended a rank, whose failure has `code`, because
    of another one, which ended `later_s` seconds after it, or before.
    """
    return code == _TERMINATED and other_code != _TERMINATED and later_s < _LAUNCHER_S
