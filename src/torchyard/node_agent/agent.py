"""Keep this machine a node of a cluster, for as long as the program runs.

Owns: joining, reporting, starting Ray again when it has ended, or the head or this machine has
another address, leaving.
Leaves: Ray's process to ray_node.py, who may join to the server.
Always: a machine has joined once Ray has it; a server that can't be reached changes nothing: Ray
and the jobs go on, and the machine is there again when it answers; one that was removed at the
server ends.
"""

from __future__ import annotations

import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchyard.base.errors import (
    BuildFailed,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    TorchyardError,
    Unreachable,
)
from torchyard.base.http import Transport
from torchyard.executors.ray.ray_environment import (
    RayEnvironment,
    RayEnvironments,
    RayVersion,
)
from torchyard.node_agent import carried_ray, facts, invitations, port_probe
from torchyard.node_agent.ray_node import Membership, RayNode
from torchyard.shared import locks

REPORT_EVERY_S = 10.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 1.0, 60.0
_RAY_START_S, _POLL_S = 180.0, 0.2
_REMOVED = "machine_not_found"
_OWN_TOKENS = "yard_m_"


@dataclass(frozen=True)
class Machine:
    """A machine's `name` in a cluster of a workspace, and its `address` there."""

    workspace: str
    compute: str
    name: str
    address: str

    @property
    def path(self) -> str:
        name = quote(self.name, safe="")
        return f"/v1/workspaces/{self.workspace}/machines/{self.compute}/{name}"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only agent of a folder.

    Raises:
        InvalidInput: another one runs.
    """
    with locks.hold(folder / "agent.lock", lambda: True) as is_alone:
        if not is_alone:
            raise InvalidInput(
                "this machine is a node already: another `yard node join` runs here",
                "end it first, or see `yard node list`",
            )
        yield


class Agent:
    """
    Args:
        folder: of this machine's node; one agent at a time has it.
        find_address: asked for the machine's address again and again; empty without a network.
        uv: the path of uv.
        say: called with each line for the person who watches.
    """

    def __init__(
        self,
        transport: Transport,
        machine: Machine,
        folder: Path,
        find_address: Callable[[], str],
        uv: str,
        environ: Mapping[str, str],
        say: Callable[[str], object],
    ) -> None:
        self._transport = transport
        self._machine = machine
        self._folder = folder
        self._find_address = find_address
        self._environments = RayEnvironments(folder, uv, environ)
        self._say = say
        self._stopping = threading.Event()
        self._ray = RayNode(folder, environ)
        self._has_runner = bool(environ.get("TORCHYARD_NODE_RUNNER"))
        self._membership: Membership | None = None
        self._environment: RayEnvironment | None = None
        self._delay_s = _FIRST_DELAY_S

    def stop(self) -> None:
        """End soon; from another thread, or from a signal's handler."""
        self._stopping.set()

    def run(self) -> None:
        """Join, then stay until `stop`, or until the machine is removed at the server.

        Raises:
            TorchyardError: the server refuses the machine.
            BuildFailed: it can't have the head's Ray or Python.
            InvalidInput: another agent runs here.
        """
        with alone(self._folder):
            try:
                self._join()
                self._stay()
            finally:
                self._ray.stop()

    def _join(self) -> None:
        with port_probe.answering(self._machine.address) as probe:
            try:
                answer = self._ask("PUT", "", probe=probe)
            except NotAuthenticated as error:
                if not self._has_own_token:
                    raise
                raise NotAuthenticated(
                    "this machine was removed from the cluster, or its invitation was withdrawn",
                    "join it by another one: `yard node invite` on the server's machine",
                ) from error
        try:
            port_probe.check_head(answer["ray"]["address"])
            self._follow(answer)
            self._await_ray()
        except TorchyardError:
            joined = answer["machine"]
            if joined["joined_at"] == joined["seen_at"]:  # it was not one before
                with suppress(TorchyardError):
                    self._transport.post(f"{self._machine.path}/withdraw")
            raise

    def _await_ray(self) -> None:
        deadline = time.monotonic() + _RAY_START_S
        while not (self._ray.has_joined or self._stopping.is_set()):
            is_late = time.monotonic() > deadline
            if self._ray.gave_up_waiting and not is_late:
                self._start_again()
            elif not self._ray.is_running or is_late:
                assert self._membership is not None
                raise Unreachable(
                    f"Ray does not join the head at {self._membership.address}: "
                    f"{self._ray.last_words()}",
                    f"see `{self._ray.log}`",
                )
            self._stopping.wait(_POLL_S)

    def _stay(self) -> None:
        if self._stopping.is_set() or not self._report():
            return
        machine = self._machine
        self._say(f"Joined `{machine.compute}` as `{machine.name}`, at {machine.address}.")
        reported_at = time.monotonic()
        while not self._stopping.is_set():
            if not self._ray.is_running:
                self._start_again()
            self._stopping.wait(min(1.0, REPORT_EVERY_S))
            if time.monotonic() - reported_at < REPORT_EVERY_S:
                continue
            reported_at = time.monotonic()
            self._follow_address()
            if not self._report():
                return

    def _report(self) -> bool:
        """Tell the server that the machine is there; False when it was removed."""
        try:
            self._follow(self._ask("POST", "/report"))
            self._delay_s = _FIRST_DELAY_S
        except NotFound as error:
            if error.code != _REMOVED:
                raise
            return self._note_removal()
        except NotAuthenticated:
            if not self._has_own_token:
                raise
            return self._note_removal()
        except Unreachable as error:
            self._say(f"warning: {error.message}; jobs go on, and this is tried again")
        return True

    @property
    def _has_own_token(self) -> bool:
        """Whether the token is the machine's, which goes with it, and not a person's."""
        return self._transport.token.startswith(_OWN_TOKENS)

    def _note_removal(self) -> bool:
        self._say("This machine was removed from the cluster: it is not a node any more.")
        invitations.forget(self._folder)
        return False

    def _follow(self, answer: Mapping[str, Any]) -> None:
        """Be a node of the head that the server names."""
        ray = answer["ray"]
        membership = Membership(
            ray["address"], ray["version"], ray["python"], ray["token"], ray["labels"]
        )
        if membership == self._membership:
            return
        if self._membership is not None:
            self._say(f"The head is at {membership.address} now: joining it.")
            self._ray.stop()
        self._membership = membership
        version = RayVersion(membership.version, membership.python)
        if self._environments.complete(version) is None:
            self._say(f"Installing Ray {version.ray} for Python {version.python} …")
        try:
            self._environment = self._environments.get(version)
        except BuildFailed as error:
            self._environment = self._carry(version, error)
        self._ray.start(self._environment, membership, self._machine.address)

    def _carry(self, version: RayVersion, reason: BuildFailed) -> RayEnvironment:
        """Ray's environment from the server, where this machine can't make one.

        Raises:
            BuildFailed: the server has none either, or it does not run here.
        """
        self._say(f"{reason.message}; taking it from the server …")
        arrived = self._folder / "engines" / ".arrived"
        arrived.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path = f"{self._machine.path}/ray"
            system = f"{platform.system()} {platform.machine()}"
            with self._transport.stream(path, {"system": system}) as answer:
                with open(arrived / "archive", "wb") as file:
                    shutil.copyfileobj(answer, file)
            carried_ray.unpack(arrived / "archive", arrived.parent, version.ray, version.python)
        except NotFound:
            raise reason from None
        finally:
            shutil.rmtree(arrived, ignore_errors=True)
        environment = self._environments.complete(version)
        assert environment is not None
        return environment

    def _follow_address(self) -> None:
        """Join again when this machine has lost its address: Ray can't change that of a node."""
        if facts.has_address(self._machine.address):
            return
        address = self._find_address()
        if not address:
            return
        self._say(f"This machine's address is {address} now: joining again.")
        self._machine = replace(self._machine, address=address)
        self._ray.stop()
        assert self._membership is not None and self._environment is not None
        self._ray.start(self._environment, self._membership, address)

    def _start_again(self) -> None:
        """After Ray has ended: its head was restarted, or the machine slept."""
        assert self._membership is not None and self._environment is not None
        self._say(f"warning: Ray has ended ({self._ray.last_words()}); it is started again")
        self._ray.stop()
        if not self._stopping.wait(self._delay_s):
            self._delay_s = min(_LONGEST_DELAY_S, self._delay_s * 2)
            self._ray.start(self._environment, self._membership, self._machine.address)

    def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        machine_facts = {**facts.facts(), "runner": self._has_runner}
        body = {"address": self._machine.address, "facts": machine_facts, **more}
        answer: dict[str, Any] = self._transport.call(method, self._machine.path + path, body)
        return answer
