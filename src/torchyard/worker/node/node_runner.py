"""Run a node's worker through the runner of its machine, as the Unix account of the job's owner.

Owns: asking the machine's `yard-runner`, where the account keeps the node's files.
Leaves: fetching the plan, and what the engine wants, to starter.py; accounts and processes to
runner/.
Always: the worker ends with the program that asks here, however that ends; no token is told to
anybody but the runner, which hands the plan to the account.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchyard import __version__
from torchyard.shared import runner_messages as messages
from torchyard.shared.plan import LaunchPlan

VARIABLE = "TORCHYARD_NODE_RUNNER"
"""Names the runner's socket in the environment of a node that takes everybody's jobs."""
_ANSWER_S = 60.0
_REMOVAL_S = 700.0
_TRY_FOR_S = 120.0
_LOOK_EVERY_S = 0.2
_PAUSE_S = 1.0
_NODE_FOLDER = ".cache/torchyard-node"
_SYSTEMD = "see `systemctl status torchyard-runner.socket torchyard-runner` there"


class RunnerFault(Exception):
    """The runner can't run the node."""

    def __init__(self, message: str, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class NodeRunner:
    """
    Args:
        socket_path: the runner's.
        worker: the worker's program, and `worker_sha256` its hash.
    """

    def __init__(
        self, socket_path: str, worker: Path, worker_sha256: str, attempt: str, node: int
    ) -> None:
        self._socket_path = socket_path
        self._worker = worker
        self._worker_sha256 = worker_sha256
        self._attempt = attempt
        self._node = node

    def placed(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan with the folders that its person's account has on this machine.

        Raises:
            RunnerFault: the runner does not answer, is of another version, or has no account.
        """
        hello = self._call("hello")
        if hello["version"] != __version__:
            raise RunnerFault(
                f"its runner is of version {hello['version']}, and the server of {__version__}",
                "install the server's version there, then `systemctl restart torchyard-runner`",
            )
        home = self._call("account", person=plan.person)["home"]
        return replace(
            plan,
            scratch=os.path.join(hello["node_folder"], "scratch", self._attempt),
            node_folder=os.path.join(home, _NODE_FOLDER),
        )

    def run(self, plan: LaunchPlan, grace_s: float, is_told_to_end: Callable[[], bool]) -> None:
        """Until the node has ended; a worker that died with its supervisor is recovered.

        Args:
            grace_s: what a node that is told to end has.
            is_told_to_end: whether the engine wants the node to end.

        Raises:
            RunnerFault: it could not be started, or ended without a word.
        """
        for _ in range(2):
            self._run_once(plan, grace_s, is_told_to_end)
            if self._wait_for_end(grace_s) == "exited":
                return
            records = self._call("records", attempt=self._attempt, count=self._node + 1)
            if records["workers"][-1] is None:
                break
        raise RunnerFault(
            "its worker ended before it could report", "see the runner's journal, and `dmesg` there"
        )

    def end(self) -> None:
        """End what still runs of a node that nobody looks after, and remove its files."""
        with contextlib.suppress(RunnerFault):
            self._call("signal", attempt=self._attempt, node=self._node, signal=int(signal.SIGTERM))
        self.remove()

    def remove(self) -> None:
        """Remove the attempt's files; what can't be removed now is left to the next start."""
        with contextlib.suppress(RunnerFault):
            self._call("remove", attempt=self._attempt)

    def _run_once(
        self, plan: LaunchPlan, grace_s: float, is_told_to_end: Callable[[], bool]
    ) -> None:
        try:
            self._hold(plan, grace_s, is_told_to_end)
        except RunnerFault as fault:
            if fault.code != "no_worker":
                raise
            with open(self._worker, "rb") as file:
                self._call("keep_worker", [file.fileno()])
            self._hold(plan, grace_s, is_told_to_end)

    def _hold(self, plan: LaunchPlan, grace_s: float, is_told_to_end: Callable[[], bool]) -> None:
        """Have the runner run the node for as long as the connection to it is open."""
        body = {
            "attempt": self._attempt,
            "node": self._node,
            "person": plan.person,
            "worker": self._worker_sha256,
            "plan": plan.to_json(),
            "limits": plan.node_limits,
            "grace_s": math.ceil(grace_s),
        }
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(self._connected())
                messages.send(connection, {"request": "run", **body})
            except (OSError, messages.BadMessage) as error:
                raise self._unreachable(error) from error
            while not select.select([connection], [], [], _LOOK_EVERY_S)[0]:
                if is_told_to_end():
                    return
            with contextlib.suppress(OSError, messages.BadMessage):
                _checked(messages.receive(connection)[0])

    def _wait_for_end(self, grace_s: float) -> str:
        deadline = time.monotonic() + grace_s + _TRY_FOR_S
        while True:
            answer = self._call("states", attempt=self._attempt, count=self._node + 1)
            state = str(answer["states"][-1])
            if state not in ("running", "ending") or time.monotonic() > deadline:
                return state
            time.sleep(_LOOK_EVERY_S)

    def _call(self, request: str, descriptors: Sequence[int] = (), **body: Any) -> dict[str, Any]:
        """Ask, again for a while where nobody answers: the runner may be restarted just now."""
        deadline = time.monotonic() + _TRY_FOR_S
        while True:
            try:
                limit_s = _REMOVAL_S if request == "remove" else _ANSWER_S
                path = self._socket_path
                return _checked(messages.ask(path, request, limit_s, descriptors, **body))
            except (OSError, messages.BadMessage) as error:
                if time.monotonic() > deadline:
                    raise self._unreachable(error) from error
            time.sleep(_PAUSE_S)

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_ANSWER_S)
            connection.connect(self._socket_path)
        except OSError:
            connection.close()
            raise
        return connection

    def _unreachable(self, error: Exception) -> RunnerFault:
        return RunnerFault(
            f"its runner at `{self._socket_path}` does not answer: {error}", _SYSTEMD
        )


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "ok" in answer:
        return dict(answer["ok"])
    error = answer.get("error") or {}
    raise RunnerFault(
        f"its runner refuses it: {error.get('message')}",
        str(error.get("hint") or _SYSTEMD),
        str(error.get("code") or ""),
    )
