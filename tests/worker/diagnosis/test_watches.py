"""When ranks are asked for their collectives before they are stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.diagnosis import rank_calls
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.diagnosis.watches import Watches
from torchyard.worker.preflight.rendezvous import Rendezvous
from torchyard.worker.server.control import Control
from torchyard.worker.system.memory_kills import MemoryKills

TEXTS = dict.fromkeys(
    (
        "attempt_id", "job", "workspace", "experiment", "command", "server_url", "report_token",
        "run_token", "scratch",
    ),
    "x",
)  # fmt: skip
PLAN = LaunchPlan(**{**TEXTS, "attempt": 1, "processes_per_node": 2, "stall_notice_s": 30.0})  # type: ignore[arg-type]


def ending(folder: Path, reason: str) -> list[str]:
    """The kinds of the events that a node posts whose ranks are about to be stopped."""
    events: list[str] = []
    context = DiagnosisContext(0, True, folder / "work", folder / "errors", MemoryKills())
    control = Control()
    if reason:
        control.stop(reason)

    def post(kind: str, **body: Any) -> None:
        events.append(kind)

    Watches(
        PLAN,
        context,
        Rendezvous("127.0.0.1", 6105, ("127.0.0.1",), "lo"),
        control,
        folder,
        lambda *_: None,
        post,
        lambda: 0,
    ).ending({})
    return events


@pytest.mark.parametrize(
    ("reason", "is_asked"),
    [("", True), ("failed", True), ("peer_lost", True), ("timeout", True), ("cancel", False),
     ("preempted", False), ("resized", False), ("release", False), ("signal", False)],
)  # fmt: skip
def test_ranks_are_asked_only_where_the_job_ends_of_itself(
    reason: str, is_asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"rank": "1", "groups": []}
    monkeypatch.setattr(rank_calls, "ask", lambda *_, **__: ([asked], 0))
    assert ending(tmp_path, reason) == (["ranks_stand"] if is_asked else [])


def test_ranks_that_leave_nothing_to_read_are_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_calls, "ask", lambda *_, **__: ([], 0))
    assert ending(tmp_path, "") == []
