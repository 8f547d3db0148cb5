"""Run a build as the build user.

Owns: starting a program as the account `build_user` of the configuration, and ending it with
the server that asked for it.
Leaves: what is built, and checking the result, to environments/.
Always: the program gets no right of root, of the server or of a job's account; when the server goes
away, so does all that the build started in its session or its cgroup.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard.runner import accounts, cgroups, scratch
from torchyard.runner.config import Config, Refused
from torchyard.shared import runner_messages as messages

_MOST_WORDS = 10_000
_PATH = "/usr/local/bin:/usr/bin:/bin"
_EXEC_FAILED = 127


def run(
    config: Config,
    body: dict[str, Any],
    descriptors: Sequence[int],
    connection: socket.socket,
) -> dict[str, Any]:
    """Run the program to its end; its `exit_code`, negative for a signal.

    Args:
        body: `command`, a list of words; `folder`, where it runs; `environment`.
        descriptors: one file, for its output.

    Raises:
        Refused: there is no build user, or the request is malformed.
    """
    if not config.build_user:
        raise Refused(
            "no_build_user",
            "the runner has no build user",
            "name one as `build_user` in /etc/torchyard/runner.json",
        )
    account = accounts.get_by_name(config, config.build_user)
    words, environment = _words(body.get("command")), body.get("environment") or {}
    folder = body.get("folder")
    if not isinstance(folder, str) or not folder.startswith("/") or len(descriptors) != 1:
        raise Refused("bad_request", "a folder and one file for the output are wanted")
    if not isinstance(environment, dict) or not all(
        isinstance(value, str) for value in environment.values()
    ):
        raise Refused("bad_request", "`environment` is not a mapping of names to texts")
    home = scratch.home(config, account)
    variables = {"PATH": _PATH, "LANG": "C.UTF-8", **environment, "HOME": str(home)}
    group = cgroups.make(f"build-{os.getpid()}", 0, account.uid, account.gid, {})
    child = os.fork()
    if child == 0:
        _exec(account, group, folder, words, variables, descriptors[0])
    try:
        return {"exit_code": os.waitstatus_to_exitcode(_wait(child, connection))}
    finally:
        _end(child)
        cgroups.remove(f"build-{os.getpid()}", 0)


def _words(value: Any) -> list[str]:
    if (
        not isinstance(value, list)
        or not 0 < len(value) <= _MOST_WORDS
        or not all(isinstance(word, str) and "\0" not in word for word in value)
        or not value[0].startswith("/")
    ):
        raise Refused("bad_request", "`command` is not a list of words that begins with a path")
    return value


def _exec(
    account: accounts.Account,
    group: Path | None,
    folder: str,
    words: list[str],
    variables: dict[str, str],
    output: int,
) -> None:
    try:
        cgroups.enter(group)
        os.setsid()
        for signum in (signal.SIGPIPE, signal.SIGTERM, signal.SIGALRM, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.umask(0o022)
        accounts.become(account)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # As the account, which may not enter what is closed to it.
        os.chdir(folder)
        os.closerange(3, 4096)
        os.execve(words[0], words, variables)
    except BaseException as error:
        os.write(2, f"{words[0]} could not be started: {error}\n".encode())
    finally:
        os._exit(_EXEC_FAILED)


def _wait(child: int, connection: socket.socket) -> int:
    """The child's wait status; it is killed if the other end hangs up."""
    ended = os.pidfd_open(child)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(connection, select.POLLIN | select.POLLHUP)
    try:
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if ended not in ready:
                _end(child)
                os.kill(child, signal.SIGKILL)  # it may not have a session of its own yet
                os.waitpid(child, 0)
                raise messages.BadMessage("the server went away")
            return os.waitpid(child, 0)[1]
    finally:
        os.close(ended)


def _end(child: int) -> None:
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
