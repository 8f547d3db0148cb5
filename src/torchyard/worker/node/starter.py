"""Start a node's worker on a machine that does not see the server's disk, and stay beside it.

`python -I -S worker.pyz --start FD --node K …`, as executors/bootstrap_program.py runs it: the
descriptor holds the `NodeStart`.

Owns: fetching the plan, the node's folder of the attempt, passing on what the engine wants, the
folder's end.
Leaves: the worker's own supervision to supervisor.py, the environment to files/node_environment.py.
Always: it ends with the node's exit code, and only when no process of the node is left; what a
killed one left is removed by the next on this machine; a worker does not outlive it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchyard.shared import disk, locks, node_agents, node_start
from torchyard.shared import plan as plans
from torchyard.shared.connection import AttemptOver, Connection, Refused, Unreachable
from torchyard.shared.node_records import NodeRecords, State
from torchyard.shared.node_start import NodeStart
from torchyard.shared.plan import DevicePlan, LaunchPlan
from torchyard.shared.retry_delays import after, retry
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.node import node_removal, supervised_worker, supervisor
from torchyard.worker.node.node_runner import VARIABLE as RUNNER_VARIABLE
from torchyard.worker.node.node_runner import NodeRunner, RunnerFault
from torchyard.worker.server.events import now_text
from torchyard.worker.system import processes, signals

_AWAITED = (*signals.ENDING, signal.SIGCHLD)
_LOOK_EVERY_S = 0.2
# What a worker that was asked to end has for its uploads, beside the grace period of its ranks.
_DELIVERY_S = 60.0
_TELL_S = 20.0
# As in executors/bootstrap_program.py.
_REACH_S = 60.0
_RESTART_S = 600.0
_LOOPBACK = ("127.", "localhost", "[::1]")
_LOG_LENGTH = 10_000
_CODE = "node_unusable"
_EXIT_CODE = 125
_OPTIONS = ("start", "node", "address", "devices", "until-eof", "die-with-parent")


@dataclass(frozen=True)
class Arguments:
    """See executors/bootstrap_program.py."""

    start: NodeStart
    node: int
    address: str
    devices: tuple[DevicePlan, ...]
    until_eof: bool
    die_with_parent: bool


class _Unusable(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def arguments(words: Sequence[str]) -> Arguments:
    """
    Raises:
        SystemExit: they are not what the bootstrap passes.
    """
    options = dict(zip(words[::2], words[1::2]))
    if set(options) != {f"--{name}" for name in _OPTIONS}:
        sys.exit("usage: this is run by torchyard's bootstrap program")
    with os.fdopen(int(options["--start"])) as file:
        start = node_start.from_json(file.read())
    return Arguments(
        start,
        int(options["--node"]),
        options["--address"],
        tuple(_device(item) for item in json.loads(options["--devices"] or "[]")),
        bool(options["--until-eof"]),
        bool(options["--die-with-parent"]),
    )


def _device(item: Any) -> DevicePlan:
    """A device as the engine calls it: an object, an index, or a UUID."""
    if isinstance(item, Mapping):
        return DevicePlan(str(item["kind"]), int(item["index"]), str(item.get("uuid", "")))
    text = str(item)
    return DevicePlan("nvidia", int(text), "") if text.isdigit() else DevicePlan("nvidia", -1, text)


def start(arguments: Arguments, environ: Mapping[str, str]) -> int:
    """Run the node's part of the attempt; the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    for signum in _AWAITED:
        signal.signal(signum, signal.SIG_DFL)
    if arguments.die_with_parent:
        processes.die_with_parent(signal.SIGTERM)
    if arguments.until_eof:
        threading.Thread(target=_end_at_eof, name="eof", daemon=True).start()
    processes.become_subreaper()
    starter = _Starter(arguments, environ)
    try:
        return starter.run()
    except AttemptOver:
        _say("the attempt is over on the server")
        return 0
    except _Unusable as error:
        return starter.fail(error)
    except RunnerFault as fault:
        return starter.fail(_Unusable(fault.message, fault.hint))
    except OSError as error:
        hint = "free disk space there" if disk.is_to_blame(error) else "see the engine's log there"
        return starter.fail(_Unusable(str(error), hint))


class _Starter:
    def __init__(self, arguments: Arguments, environ: Mapping[str, str]) -> None:
        start = arguments.start
        self._arguments = arguments
        self._environ = environ
        self._folder = Path(start.folder)
        urls = start.server_urls
        address = ServerAddress(
            urls[0] if urls else "", start.server_id, "", urls, start.server_certificate, environ
        )
        self._link = Connection.of_attempt(address, start.report_token, start.attempt_id)
        self._attempt = self._folder / "scratch" / start.attempt_id
        self._node = self._attempt / f"node-{arguments.node}"
        self._plan_file = self._attempt / f"plan-{arguments.node}.json"
        self._lock = -1
        self._is_told_to_end = False

    def run(self) -> int:
        self._remove_stale()
        plan = self._plan()
        runner = self._runner(self._attempt.name, self._arguments.node)
        if runner is not None:
            plan = runner.placed(plan)
        self._attempt.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = locks.open_lock(self._lock_file)
        if not locks.try_lock(self._lock) or not self._is_lock_ours():
            return 0  # this node runs already, or has run: an engine may start it twice
        try:
            if runner is not None:
                runner.run(plan, plan.grace_s + _DELIVERY_S, self._note_signal)
                runner.remove()
                return 0
            _write_private(self._plan_file, plan.to_json())
            return self._supervise(plan)
        finally:
            self._end_processes(0.0)
            self._remove()

    def _runner(self, attempt: str, node: int) -> NodeRunner | None:
        """What starts workers here, if this machine has something of its own for that."""
        socket_path = self._environ.get(RUNNER_VARIABLE)
        if not socket_path:
            return None
        digest = self._arguments.start.worker
        worker = self._folder / "workers" / f"{digest}.pyz"
        return NodeRunner(socket_path, worker, digest, attempt, node)

    def _note_signal(self) -> bool:
        """Whether the engine wants this node to end; it has said so once."""
        info = signal.sigtimedwait(_AWAITED, 0)
        if info is not None and info.si_signo in signals.ENDING and not self._is_told_to_end:
            self._is_told_to_end = True
            _say(f"the node is told to end by {signals.received(info).text}")
        return self._is_told_to_end

    @property
    def _lock_file(self) -> Path:
        return self._attempt / f"lock-{self._arguments.node}"

    def _is_lock_ours(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._lock), os.stat(self._lock_file))
        except FileNotFoundError:
            return False  # it ended between opening and locking

    def _plan(self) -> LaunchPlan:
        is_late, is_too_late = after(_REACH_S), after(_RESTART_S)
        hosts = [url.partition("://")[2] for url in self._arguments.start.server_urls]
        is_apart = not all(host.startswith(_LOOPBACK) for host in hosts)

        def ask() -> dict[str, Any]:
            try:
                return self._link.call("GET", "/plan")
            except Unreachable as error:
                restarts = is_apart and isinstance(error.__cause__, ConnectionRefusedError)
                if is_too_late() if restarts else is_late():
                    raise self._unreachable(error) from error
                raise

        try:
            body = retry(ask, _is_told_to_end)
        except Refused as refusal:
            error = refusal.body.get("error") or {}
            raise _Unusable(
                f"the server has no plan for it: {error.get('message') or refusal.status}",
                "see `yard job show`",
            ) from refusal
        plan = plans.from_json(json.dumps(body))
        arguments = self._arguments
        devices: list[list[DevicePlan]] = []
        if arguments.devices or plan.gpus_per_node:
            devices = [[] for _ in range(plan.node_count)]
            devices[arguments.node] = list(arguments.devices)
        return replace(
            plan,
            scratch=str(self._attempt),
            node_folder=str(self._folder),
            address=arguments.address,
            devices=devices,
            blobs="",
            server_file="",
            server_urls=arguments.start.server_urls or plan.server_urls,
            server_certificate=arguments.start.server_certificate or plan.server_certificate,
        )

    def _unreachable(self, error: Unreachable) -> _Unusable:
        urls = self._arguments.start.server_urls
        return _Unusable(
            f"it can't reach the server: {', '.join(urls)}: {error.__cause__}",
            "open this TCP port of the server to the nodes, or set HTTPS_PROXY on them; "
            f"`curl -k {urls[0]}/livez` there tries it",
        )

    def _supervise(self, plan: LaunchPlan) -> int:
        """Until the node has ended; a worker that died with its supervisor is recovered."""
        exit_code = self._wait(self._fork(), plan.grace_s)
        state = self._state()
        deadline = time.monotonic() + plan.grace_s + _DELIVERY_S
        # Without its supervisor a worker ends its ranks and reports by itself.
        while state in ("running", "ending") and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
            _reap()
            state = self._state()
        if state in ("running", "ending"):
            self._end_processes(0.0)
        if (self._node / "exit.json").exists():
            return self._exit_code(exit_code)
        if (self._node / "worker.json").exists():
            return self._wait(self._fork(), plan.grace_s)
        message = "its worker ended before it could report"
        with contextlib.suppress(OSError):
            log = (self._node / "worker.log").read_text(errors="replace")
            _say(log[-_LOG_LENGTH:])
        if _signals_pending() or (self._node / supervisor.STARTER_FILE).exists():
            message = f"its engine ended it: {self._received()}"
        raise _Unusable(message, "see the engine's log of that node, and `dmesg` there")

    def _received(self) -> str:
        if (self._node / supervisor.AGENT_DIED).exists():
            return supervisor.AGENT_WAS_KILLED
        received = signals.load(self._node / supervisor.STARTER_FILE)
        return received.text if received else "a signal"

    def _state(self) -> State:
        return NodeRecords(str(self._attempt)).state(self._arguments.node, {})

    def _exit_code(self, otherwise: int) -> int:
        try:
            return int(json.loads((self._node / "exit.json").read_text())["exit_code"])
        except (OSError, ValueError, KeyError, TypeError):
            return otherwise

    def _fork(self) -> int:
        """Start the supervisor; its pid. A new Python would have to import all of this again."""
        self._node.mkdir(mode=0o700, exist_ok=True)
        self._link.close()
        sys.stdout.flush()
        sys.stderr.flush()
        starter = os.getpid()
        child = os.fork()
        if child == 0:
            os._exit(self._supervisor(starter))
        return child

    def _supervisor(self, starter: int) -> int:
        """The life of the child: it has nothing of this process but the lock."""
        exit_code = 1
        try:
            os.setsid()
            log = os.open(self._node / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for descriptor in map(int, os.listdir("/proc/self/fd")):
                if descriptor > 2 and descriptor != self._lock:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)
            exit_code = supervised_worker.run(self._plan_file, self._arguments.node, starter)
        except BaseException:
            traceback.print_exc()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        return exit_code

    def _wait(self, child: int, grace_s: float) -> int:
        """Until the child ends; pass on that the node is to end, and kill what does not."""
        deadline: float | None = None
        while True:
            info = signal.sigtimedwait(_AWAITED, _LOOK_EVERY_S)
            if info is not None and info.si_signo in signals.ENDING and deadline is None:
                received = signals.received(info)
                _say(f"the node is told to end by {received.text}")
                if node_agents.has_ended(self._environ):
                    (self._node / supervisor.AGENT_DIED).touch()
                signals.save(self._node / supervisor.STARTER_FILE, received)
                os.kill(child, signal.SIGTERM)
                deadline = time.monotonic() + grace_s + _DELIVERY_S
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if deadline is not None and time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            _reap(child)

    def _end_processes(self, grace_s: float) -> None:
        mark = processes.mark(self._arguments.start.attempt_id, self._arguments.node)
        processes.end(lambda: processes.family(os.getpid(), mark), grace_s, _reap)

    def fail(self, error: _Unusable) -> int:
        """Tell the server why this node has no worker; the exit code."""
        node = self._arguments.node
        message = f"node {node} ({os.uname().nodename}) can't be used: {error.message}"
        _say(f"error: {message}\nhint: {error.hint}")
        body = {
            "exit_code": _EXIT_CODE,
            "error": {"code": _CODE, "message": message, "hint": error.hint},
        }
        event = {"seq": 0, "at": now_text(), "kind": "node_exited", "body": body}
        report = {"node": node, "events": [event]}
        with contextlib.suppress(OSError, Refused, AttemptOver):
            retry(lambda: self._link.call("POST", "/report", report), after(_TELL_S))
        return _EXIT_CODE

    def _remove(self) -> None:
        node_removal.remove_node(self._attempt, self._arguments.node)
        os.close(self._lock)

    def _remove_stale(self) -> None:
        """What nodes left whose starter and worker were both killed."""
        for lock_file in (self._folder / "scratch").glob("*/lock-*"):
            attempt, node = lock_file.parent, lock_file.name.removeprefix("lock-")
            with contextlib.suppress(OSError), locks.held_if_free(lock_file) as is_free:
                if not is_free:
                    continue
                mark = processes.mark(attempt.name, int(node))
                processes.end(lambda: processes.family(os.getpid(), mark), 0.0, _reap)  # noqa: B023
                runner = self._runner(attempt.name, int(node))
                if runner is not None:
                    runner.end()
                node_removal.remove_node(attempt, int(node))


def _reap(spared: int = 0) -> None:
    """Reap adopted processes that have ended, but not the child that is waited for."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == spared:
            return
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, os.WNOHANG)


def _say(text: str) -> None:
    """To the engine, which may have ended: the node's end must not wait for it, or fail with it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        # What is left to write would fail at the end of this process, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _end_at_eof() -> None:
    """The engine closes standard input, or dies with its end of it."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def _is_told_to_end() -> bool:
    return bool(_signals_pending())


def _signals_pending() -> set[int]:
    return set(signal.sigpending()) & set(signals.ENDING)


def _write_private(file: Path, text: str) -> None:
    draft = file.with_name(f"{file.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)
    draft.replace(file)
