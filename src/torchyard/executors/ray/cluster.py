"""One Ray cluster, as this server uses it.

Owns: launching, watching and releasing attempts there; one question for all of them.
Leaves: the process that speaks to Ray to bridge.py, states for people to engine.py.
Always: what a bridge does not know it is told again, from the plans that are kept; an outcome that
was seen stays until the attempt is released.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from torchyard.executors.ray.bridge import Bridge

Request = Mapping[str, Any]
_FRESH_S = 1.0
_WATCHED_S = 120.0
_STATUS_LIMIT_S = 5.0
_LIMIT_S = 10.0
_TIDY_S = 30.0
_GONE = "Ray knows nothing of it any more: its head was restarted and lost its state"


class Cluster:
    """
    Args:
        request_of: what to launch an attempt with; None when its plan is not kept any more.
        used_keys: the attempts whose plans are kept.
    """

    def __init__(
        self,
        bridge: Bridge,
        request_of: Callable[[str], Request | None],
        used_keys: Callable[[], list[str]],
    ) -> None:
        self.bridge = bridge
        self._request_of = request_of
        self._used_keys = used_keys
        self._lock = threading.Lock()
        self._watched: dict[str, float] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self._asked_at = 0.0
        self._tidied_at = 0.0

    def launch(self, request: Request) -> None:
        """
        Raises:
            EngineUnreachable: whether it was launched is not known.
        """
        self.bridge.ask("launch", _LIMIT_S, **request)
        self._watched[request["attempt"]] = time.monotonic()

    def report(self, attempt: str, node_count: int) -> dict[str, Any]:
        """What the bridge says of an attempt, a second old at most: `nodes`, `waiting`.

        Raises:
            EngineUnreachable: ask again later.
        """
        with self._lock:
            now = time.monotonic()
            self._watched[attempt] = now
            report = self._reports.get(attempt)
            if report is not None and _is_over(report):
                return report
            if report is None or now - self._asked_at >= _FRESH_S:
                self._ask_all(node_count)
            return self._reports[attempt]

    def _ask_all(self, node_count: int) -> None:
        now = time.monotonic()
        self._watched = {
            attempt: at for attempt, at in self._watched.items() if now - at < _WATCHED_S
        }
        open_attempts = [
            attempt for attempt in self._watched if not _is_over(self._reports.get(attempt))
        ]
        answer = self.bridge.ask("status", _STATUS_LIMIT_S, attempts=open_attempts)
        unknown = [attempt for attempt in open_attempts if answer[attempt].get("unknown")]
        if unknown:
            unreachable = {
                attempt: report
                for attempt in unknown
                if (report := self._take_over(attempt, node_count)) is not None
            }
            answer = self.bridge.ask("status", _STATUS_LIMIT_S, attempts=open_attempts)
            answer.update(unreachable)
        for attempt, report in answer.items():
            if not report.get("unknown"):
                self._reports[attempt] = report
        self._asked_at = time.monotonic()

    def _take_over(self, attempt: str, node_count: int) -> dict[str, Any] | None:
        """Tell a new bridge of an attempt; what became of it if Ray has it no more."""
        request = self._request_of(attempt)
        if request is None:  # it ended, and was released
            return {"nodes": [{"state": "exited", "code": 0}] * node_count}
        answer = self.bridge.ask("launch", _LIMIT_S, **{**request, "only_existing": True})
        if answer["launched"]:
            return None
        before = (self._reports.get(attempt) or {}).get("nodes", [{}] * request["nodes"])
        return {
            "nodes": [
                node
                if node.get("state") in ("exited", "lost")
                else {**node, "state": "lost", "because": _GONE}
                for node in before
            ]
        }

    def stop(self, attempt: str, signal_number: int) -> None:
        """
        Raises:
            EngineUnreachable: call again.
        """
        answer = self.bridge.ask("stop", _LIMIT_S, attempt=attempt, signal=signal_number)
        if answer.get("unknown"):
            request = self._request_of(attempt)
            if request is None:
                return
            launched = self.bridge.ask("launch", _LIMIT_S, **{**request, "only_existing": True})
            if launched["launched"]:
                self.bridge.ask("stop", _LIMIT_S, attempt=attempt, signal=signal_number)
        self._asked_at = 0.0

    def release(self, attempt: str, node_count: int) -> None:
        """
        Raises:
            EngineUnreachable: call again.
        """
        self.bridge.ask("forget", _LIMIT_S, attempt=attempt, nodes=node_count)
        with self._lock:
            self._watched.pop(attempt, None)
            self._reports.pop(attempt, None)

    def describe(self, wait_s: float) -> dict[str, Any]:
        """
        Raises:
            EngineUnreachable: with what is wrong, and the next step.
        """
        answer: dict[str, Any] = self.bridge.ask("describe", _LIMIT_S, wait_s)
        self._tidy(answer["groups"])
        return answer

    def _tidy(self, groups: list[str]) -> None:
        """Remove groups whose attempts have no plan any more: their server died while it did."""
        now = time.monotonic()
        if now - self._tidied_at < _TIDY_S:
            return
        self._tidied_at = now
        for attempt in set(groups) - set(self._used_keys()):
            self.bridge.ask("forget", _LIMIT_S, attempt=attempt, nodes=0)


def _is_over(report: Mapping[str, Any] | None) -> bool:
    return report is not None and all(
        node["state"] in ("exited", "lost") for node in report["nodes"]
    )
