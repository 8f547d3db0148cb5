"""Answer the server, one request per connection.

Owns: the socket, who may connect, the table of requests, limits of time and number.
Leaves: what each request does to launches.py and scratch.py.
Always: each request is answered in a process of its own, which ends after a limit; what reads a
job's files is a child of it that has become the job's account first, and which the account can
therefore stop or kill without keeping anybody else from an answer. The main process only accepts,
forks and reaps.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from torchyard import __version__
from torchyard.runner import accounts, builds, cgroups, engines, folders, launches, scratch
from torchyard.runner.config import Config, Refused
from torchyard.shared import runner_messages as messages
from torchyard.shared.node_records import NodeRecords, receipt

_LIMIT_S = 30
_ACCOUNT_LIMIT_S = 20
_MESSAGE_LIMIT_S = 5
_POLL_S = 0.05
_REMOVAL_LIMIT_S = 600
_EMPTYING_LIMIT_S = 400
_MOST_AT_ONCE = 64
_MOST_NODES = 1024
_MOST_GRACE_S = 86_400
_LISTEN_FD = 3
_WHOLE = "states:"
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)

Body = dict[str, Any]
Reply = tuple[Body, list[int]]


class RunnerRequest:
    """One request, with what is needed to answer it."""

    def __init__(
        self, config: Config, connection: socket.socket, body: Body, descriptors: list[int]
    ) -> None:
        self.config = config
        self.connection = connection
        self.body = body
        self.descriptors = descriptors

    @property
    def attempt(self) -> str:
        return scratch.checked_attempt(self.body.get("attempt"))

    def number(self, key: str, maximum: int = _MOST_NODES) -> int:
        value = self.body.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
            raise Refused("bad_request", f"`{key}` is not a number from 0 to {maximum}")
        return value

    def text(self, key: str) -> str:
        value = self.body.get(key)
        if not isinstance(value, str):
            raise Refused("bad_request", f"`{key}` is not a string")
        return value

    def as_account(self) -> int | None:
        """Become the attempt's account; its folder, None if there is none."""
        name = launches.account_of(self.config, self.attempt)
        if not name:
            return None
        account = accounts.get_by_name(self.config, name)
        folder = scratch.open_attempt(self.config, self.attempt)
        accounts.become(account)
        return folder


def hello(request: RunnerRequest) -> Body:
    config = request.config
    return {
        "version": __version__,
        "server_user": config.server_user,
        "node_folder": str(config.node_folder),
        "build_user": next(iter(config.build_users), ""),
        "engine_user": config.engine_user,
        "engines": str(config.engines),
        "python": config.python,
        "cgroups": cgroups.own() is not None,
    }


def account(request: RunnerRequest) -> Body:
    person_account = accounts.of_person(request.config, request.text("person"))
    return {
        "account": person_account.name,
        "home": str(scratch.home(request.config, person_account)),
    }


def keep_worker(request: RunnerRequest) -> Body:
    if len(request.descriptors) != 1:
        raise Refused("bad_request", "one open file is wanted: the worker's program")
    return {"worker": scratch.keep_worker(request.config, request.descriptors[0])}


def launch(request: RunnerRequest) -> Body:
    config = request.config
    limits = request.body.get("limits") or {}
    if not isinstance(limits, dict) or not all(isinstance(n, int) for n in limits.values()):
        raise Refused("bad_request", "`limits` are not numbers")
    launch_request = launches.Launch(
        request.attempt,
        request.number("node"),
        request.text("worker"),
        request.text("plan"),
        limits,
    )
    person = accounts.of_person(config, request.text("person"))
    return launches.start(config, person, launch_request, request.descriptors)


def records(request: RunnerRequest) -> Body:
    count = request.number("count")
    folder = request.as_account()
    if folder is None:
        nothing: list[Body] = []
        return {
            "workers": [None] * count,
            "begun": [False] * count,
            "devices": [nothing] * count,
        }
    files = NodeRecords("", folder)
    return {
        "workers": [_checked(files.worker(node)) for node in range(count)],
        "begun": [files.has_begun(node) for node in range(count)],
        "devices": files.devices(count),
    }


def states(request: RunnerRequest) -> Body:
    count = request.number("count")
    started = launches.launched(request.config, request.attempt)
    folder = request.as_account()
    if folder is None:
        return {"states": ["lost"] * count}
    files = NodeRecords("", folder)
    return {"states": [files.state(node, started.get(str(node), {})) for node in range(count)]}


def run(request: RunnerRequest) -> Body:
    """Launch, and answer once the node's worker has ended. If who asked goes away before, the node
    is told to end, and killed when it has not within `grace_s`.
    """
    grace_s = request.number("grace_s", _MOST_GRACE_S)
    pid = launch(request)["pid"]
    signal.alarm(0)
    if os.fork():
        os._exit(0)  # what lasts as long as a job is not one of the requests that others wait for
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return {}
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(request.connection, select.POLLIN | select.POLLHUP)
    if ended in {descriptor for descriptor, _ in poller.poll()}:
        return {}
    _in_child(lambda: _end_node(request, signal.SIGTERM), _ACCOUNT_LIMIT_S)
    if not select.select([ended], [], [], grace_s)[0]:
        _in_child(lambda: _end_node(request, signal.SIGKILL), _ACCOUNT_LIMIT_S)
        cgroups.remove(request.attempt, request.number("node"))
    raise messages.BadMessage("who asked for the node went away")


def _end_node(request: RunnerRequest, signum: int) -> None:
    """Signal what was launched: it knows then that its engine ended the node."""
    node = request.number("node")
    started = launches.launched(request.config, request.attempt).get(str(node), {})
    folder = request.as_account()
    if folder is not None:
        NodeRecords("", folder).note_starter_died(node)
        launches.signal_process(request.attempt, node, started, signum)


def send_signal(request: RunnerRequest) -> Body:
    node, signum = request.number("node"), request.number("signal")
    started = launches.launched(request.config, request.attempt).get(str(node), {})
    folder = request.as_account()
    if folder is None:
        return {"sent": False}
    files = NodeRecords("", folder)
    if signum == signal.SIGTERM:
        files.note_stop(node)
    process = files.worker(node) or started
    return {"sent": launches.signal_process(request.attempt, node, process, signum)}


def left_files(request: RunnerRequest) -> Body:
    node = request.number("node")
    folder = request.as_account()
    return {"files": [] if folder is None else list(scratch.left_files(folder, node))}


def open_left(request: RunnerRequest) -> Body:
    node = request.number("node")
    folder = request.as_account()
    if folder is None:
        raise Refused("not_found", "the attempt has no folder")
    descriptor = scratch.open_left(folder, node, request.body.get("path"))
    messages.send(request.connection, {"ok": {}}, [descriptor])
    os._exit(0)


def folder(request: RunnerRequest) -> Body:
    """A folder that a person named, as an account that they may use, until the server hangs up."""
    person, name = request.text("person"), request.text("account")
    account = accounts.for_folders(request.config, person, name)
    path, make = request.text("root"), request.body.get("make") is True
    signal.alarm(0)
    if os.fork():
        os._exit(0)  # what may last is not one of the requests that others wait for
    accounts.become(account)
    folders.serve(request.connection, path, make)


def attempts(request: RunnerRequest) -> Body:
    return {"attempts": scratch.attempts(request.config)}


def size(request: RunnerRequest) -> Body:
    folder = request.as_account()
    return {"size_bytes": 0 if folder is None else scratch.size_bytes(folder)}


def remove(request: RunnerRequest) -> Body:
    signal.alarm(_REMOVAL_LIMIT_S)
    config, attempt = request.config, request.attempt
    started = launches.launched(config, attempt)
    if {"running", "ending"} & set(_states_now(request, started)):
        raise Refused("in_use", f"attempt `{attempt}` still runs")
    for node in started:
        cgroups.remove(attempt, int(node))
    _in_child(lambda: _empty(request), _EMPTYING_LIMIT_S)
    is_removed = scratch.remove(config, attempt)
    if is_removed:
        launches.forget(config, attempt)
    return {"removed": is_removed}


def build(request: RunnerRequest) -> Body:
    signal.alarm(0)
    if os.fork():
        os._exit(0)  # builds that wait for an account are none of the requests that others wait for
    return builds.run(request.config, request.body, request.descriptors, request.connection)


def remove_build(request: RunnerRequest) -> Body:
    signal.alarm(_REMOVAL_LIMIT_S)
    return {"removed": scratch.remove_build(request.config, request.text("build"))}


def engine(request: RunnerRequest) -> Body:
    signal.alarm(0)
    if os.fork():
        os._exit(0)  # what lasts as long as a cluster is used is not one that others wait for
    return engines.run(request.config, request.body, request.descriptors, request.connection)


def signal_engine(request: RunnerRequest) -> Body:
    return engines.signal_lasting(request.config, request.body)


REQUESTS: dict[str, Callable[[RunnerRequest], Body]] = {
    "hello": hello,
    "account": account,
    "keep_worker": keep_worker,
    "launch": launch,
    "run": run,
    "records": records,
    "states": states,
    "signal": send_signal,
    "left_files": left_files,
    "open_left": open_left,
    "folder": folder,
    "attempts": attempts,
    "size": size,
    "remove": remove,
    "build": build,
    "remove_build": remove_build,
    "engine": engine,
    "signal_engine": signal_engine,
}
# Their process becomes the account.
_AS_ACCOUNT = frozenset(["records", "states", "signal", "left_files", "open_left", "size"])


def serve(config: Config, listener: socket.socket) -> NoReturn:
    """Answer until SIGTERM."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    was_moved = cgroups.settle()
    cgroups.remove_empty(engines.KIND)

    def end(*_: object) -> NoReturn:
        if was_moved:
            cgroups.leave()
        os._exit(0)

    # Children are counted by what they hold open: the pipe of one that ended reads as empty.
    answering: dict[int, int] = {}
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wakeup, waking = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    while True:
        waiting = [wakeup] if len(answering) >= _MOST_AT_ONCE else [wakeup, listener.fileno()]
        ready, _, _ = select.select(waiting, [], [])
        if wakeup in ready:
            os.read(wakeup, 4096)
            _reap(answering)
        if listener.fileno() not in ready:
            continue
        try:
            connection, _ = listener.accept()
        except OSError:
            continue
        with connection:
            try:
                child = os.fork()
            except OSError:
                traceback.print_exc()  # too many processes on this machine; the server tries again
                continue
            if child == 0:
                signal.set_wakeup_fd(-1)
                listener.close()
                os.close(wakeup)
                os.close(waking)
                _answer(config, connection)
            answering[child] = child


def listening_socket(config: Config, path: Path | None) -> socket.socket:
    """The socket that systemd made, else one at `path`, for the server's group.

    Source: sd_listen_fds(3).
    """
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS") == "1":
        return socket.socket(fileno=_LISTEN_FD)
    socket_path = path or Path(messages.SOCKET)
    socket_path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    socket_path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(socket_path))
    finally:
        os.umask(before)
    os.chown(socket_path, config.server_uid, 0)
    listener.listen(128)
    return listener


def _answer(config: Config, connection: socket.socket) -> NoReturn:
    """In a process of its own."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.alarm(_LIMIT_S)
        os.umask(0o077)
        messages.send(connection, *_reply(config, connection))
    except BrokenPipeError:
        pass  # the server has gone
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _reply(config: Config, connection: socket.socket) -> Reply:
    try:
        peer = launches.peer_uid(connection)
        if peer not in (0, config.server_uid):
            names = launches.names_of([peer])
            print(f"refused a connection of `{names[0]}`", file=sys.stderr)
            raise Refused("not_the_server", f"only `{config.server_user}` may ask the runner")
        body, descriptors = messages.receive(connection)
        name = str(body.get("request"))
        if name not in REQUESTS:
            raise Refused("bad_request", "no such request")
        request = RunnerRequest(config, connection, body, descriptors)
    except Refused as refusal:
        return _error(refusal), []
    except messages.BadMessage as error:
        return _error(Refused("bad_request", str(error))), []
    if name in _AS_ACCOUNT:
        return _of_account(request, REQUESTS[name])
    return _result(request, REQUESTS[name]), []


def _result(request: RunnerRequest, act: Callable[[RunnerRequest], Body]) -> Body:
    try:
        return {"ok": act(request)}
    except Refused as refusal:
        return _error(refusal)
    except messages.BadMessage as error:
        return _error(Refused("bad_request", str(error)))
    except Exception as error:
        # Also what files of a job bring about: without an answer, all jobs would wait.
        traceback.print_exc()
        return _error(Refused("failed", str(error) or repr(error), "see its journal"))


def _error(refusal: Refused) -> Body:
    error = {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}
    return {"error": error}


def _of_account(request: RunnerRequest, act: Callable[[RunnerRequest], Body]) -> Reply:
    """The answer of a child, which becomes the account's own process."""
    receiver, sender = socket.socketpair()

    def answer() -> None:
        receiver.close()
        request.connection = sender
        messages.send(sender, _result(request, act))

    child = _fork(answer)
    sender.close()
    receiver.settimeout(_MESSAGE_LIMIT_S)
    try:
        if not _wait(child, receiver.fileno(), _ACCOUNT_LIMIT_S):
            return _error(_ended(request)), []
        return messages.receive(receiver)
    except (OSError, messages.BadMessage):
        return _error(_ended(request)), []
    finally:
        receiver.close()
        _end(child)


def _ended(request: RunnerRequest) -> Refused:
    return Refused(
        "account_interfered",
        f"the process that reads the files of attempt `{request.body.get('attempt')}` as its "
        "account was ended or stopped, or took too long",
        "see what else runs as the account",
    )


def _states_now(request: RunnerRequest, started: dict[str, dict[str, int]]) -> list[str]:
    """The states of the nodes, read in a child that has become the account.

    Raises:
        Refused: the account ended or stopped it.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def write() -> None:
        words = [_WHOLE]
        try:
            folder = request.as_account()
        except Refused:
            folder = None  # its account is gone
        if folder is not None:
            files = NodeRecords("", folder)
            words += [files.state(int(node), started[node]) for node in started]
        os.write(writing, " ".join(words).encode())

    _in_child(write, _ACCOUNT_LIMIT_S)
    os.close(writing)
    with open(reading, "rb") as reader:
        words = (reader.read(1 << 16) or b"").decode().split()
    if words[:1] != [_WHOLE]:
        raise _ended(request)
    return words[1:]


def _empty(request: RunnerRequest) -> None:
    folder = request.as_account()
    if folder is not None:
        scratch.empty(folder)


def _in_child(act: Callable[[], None], limit_s: int) -> None:
    """Wait for it, not longer than the limit, nor when somebody stops it."""
    child = _fork(act)
    ended = os.pidfd_open(child)
    try:
        _wait(child, ended, limit_s)
    finally:
        os.close(ended)
        _end(child)


def _wait(child: int, descriptor: int, limit_s: int) -> bool:
    """Wait until the descriptor can be read; False after the limit, or if the child is stopped."""
    deadline = time.monotonic() + limit_s
    while not select.select([descriptor], [], [], _POLL_S)[0]:
        stopped = os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        if stopped is not None or time.monotonic() > deadline:
            return False
    return True


def _fork(act: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(_REMOVAL_LIMIT_S)  # should its parent be killed
            act()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)
    return child


def _end(child: int) -> None:
    """Of a child of this process, which is waited for nowhere else."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _reap(answering: dict[int, int]) -> None:
    """Answering processes, and workers, which are this process's children after those."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        answering.pop(pid, None)


def _checked(worker: Body | None) -> Body | None:
    """A worker's record, of which nothing but numbers is passed on."""
    if worker is None:
        return None
    return {**receipt(worker), "supervisor": receipt(worker.get("supervisor") or {})}
