"""Run programs of engines, such as Ray's, as the engine user.

Owns: starting a program as the account `engine_user` of the configuration, ending it with the
server that asked for it unless it is to outlive that, signalling what runs as that account.
Leaves: which programs to executors/ray/.
Always: the program gets no right of root, of the server, of builds or of a job's account; only
processes of the engine user are signalled, and that as the engine user itself.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard.runner import accounts, cgroups, scratch
from torchyard.runner.accounts import Account
from torchyard.runner.config import Config, Refused
from torchyard.shared import processes
from torchyard.shared import runner_messages as messages

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_MOST_WORDS = 100
_STREAMS = 3
_PATH = "/usr/local/bin:/usr/bin:/bin"
_EXEC_FAILED = 127
# A bridge leaves its cluster when its standard input ends, as it does with the server.
_GRACE_S = 10.0
KIND = "engine"
"""What the names of their cgroups begin with."""
_SIGNALS = (signal.SIGTERM, signal.SIGKILL)


def run(
    config: Config, body: dict[str, Any], descriptors: Sequence[int], connection: socket.socket
) -> dict[str, Any]:
    """Start a program: `pid` and `start_time` are answered at once, and once more its `exit_code`,
    negative for a signal, when it has ended. A `lasting` one is answered once, and is not ended.

    Args:
        body: `name`, of a lasting one; `command`, a list of words; `environment`.
        descriptors: standard input, output and error.

    Raises:
        Refused: there is no engine user, or the request is malformed.
        BadMessage: the server went away, and so has the program.
    """
    account = accounts.engine(config)
    words, variables = _words(body.get("command")), _variables(body.get("environment"))
    if len(descriptors) != _STREAMS:
        raise Refused("bad_request", "a program of an engine wants three files for its streams")
    is_lasting = body.get("lasting") is True
    group = _group(body.get("name") if is_lasting else str(os.getpid()))
    home = scratch.home(config, account)
    variables = {"PATH": _PATH, "LANG": "C.UTF-8", **variables, "HOME": str(home)}
    cgroup = cgroups.make(group, 0, account.uid, account.gid, {})
    child = os.fork()
    if child == 0:
        _exec(account, cgroup, words, variables, descriptors)
    process = {"pid": child, "start_time": processes.start_time(child)}
    for descriptor in descriptors:
        os.close(descriptor)
    if is_lasting:
        return process
    try:
        messages.send(connection, {"ok": process})
        return {"exit_code": os.waitstatus_to_exitcode(_wait(child, connection))}
    finally:
        _kill_session(child)
        cgroups.remove(group, 0)


def signal_lasting(config: Config, body: dict[str, Any]) -> dict[str, Any]:
    """Signal the session of a lasting program; `sent` is false where it does not run.

    Raises:
        Refused: the request is malformed, or the process is not the engine user's.
    """
    account = accounts.engine(config)
    group, signum = _group(body.get("name")), body.get("signal")
    pid, start_time = body.get("pid"), body.get("start_time")
    if (
        not isinstance(pid, int)
        or not isinstance(start_time, int)
        or pid <= 1
        or signum not in _SIGNALS
    ):
        raise Refused("bad_request", "a process and SIGTERM or SIGKILL are wanted")
    is_running = processes.is_running(pid, start_time)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            accounts.become(account)
            if is_running:
                os.killpg(pid, signum)
            code = 0
        except ProcessLookupError:
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        raise Refused("not_yours", f"process {pid} is not one of the engine user's")
    if signum == signal.SIGKILL:
        cgroups.remove(group, 0)
    return {"sent": is_running}


def _group(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refused("bad_request", "the program has no valid name")
    return f"{KIND}-{name}"


def _words(value: Any) -> list[str]:
    if (
        not isinstance(value, list)
        or not 0 < len(value) <= _MOST_WORDS
        or not all(isinstance(word, str) and "\0" not in word for word in value)
        or not value[0].startswith("/")
    ):
        raise Refused("bad_request", "`command` is not a list of words that begins with a path")
    return value


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise Refused("bad_request", "`environment` is not a mapping of names to texts")
    return value


def _exec(
    account: Account,
    group: Path | None,
    words: list[str],
    variables: dict[str, str],
    descriptors: Sequence[int],
) -> None:
    try:
        cgroups.enter(group)
        os.setsid()
        for signum in (signal.SIGPIPE, signal.SIGTERM, signal.SIGALRM, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.umask(0o077)
        accounts.become(account)
        # Above the streams' own numbers first: they may be one another's.
        streams = [os.dup(descriptor) for descriptor in descriptors]
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(_STREAMS, 4096)
        os.chdir("/")
        os.execve(words[0], words, variables)
    except BaseException as error:
        os.write(2, f"{words[0]} could not be started: {error}\n".encode())
    finally:
        os._exit(_EXEC_FAILED)


def _wait(child: int, connection: socket.socket) -> int:
    """The child's wait status; it is killed some time after the other end has hung up.

    Raises:
        BadMessage: it was.
    """
    ended = os.pidfd_open(child)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(connection, select.POLLIN | select.POLLHUP)
    try:
        if ended in {descriptor for descriptor, _ in poller.poll()}:
            return os.waitpid(child, 0)[1]
        if not select.select([ended], [], [], _GRACE_S)[0]:
            _kill_session(child)
            os.kill(child, signal.SIGKILL)  # it may not have a session of its own yet
        os.waitpid(child, 0)
    finally:
        os.close(ended)
    raise messages.BadMessage("the server went away")


def _kill_session(child: int) -> None:
    """Of a child that may have ended: its number is the group's as long as one of it is left."""
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
