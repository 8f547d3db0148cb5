"""Run a build as a build user, alone.

Owns: which build user is free, starting a program as that account, its limits, ending it with the
server that asked for it.
Leaves: what is built, and checking the result, to environments/; its folder and home to scratch.py.
Always: a build shares nothing that it can write with another one, before, beside or after it: its
account has no other process, its home is new and is removed, its folder is closed as it ends. The
program gets no right of root, of the server or of a job's account; when the server goes away, so
does all that the build started.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchyard.runner import accounts, cgroups, scratch
from torchyard.runner.accounts import Account
from torchyard.runner.config import BuildLimits, Config, Refused
from torchyard.shared import locks
from torchyard.shared import runner_messages as messages

_MOST_WORDS = 10_000
_PATH = "/usr/local/bin:/usr/bin:/bin"
_EXEC_FAILED = 127
_POLL_S = 0.25
_END_LIMIT_S = 10.0
_WAITING = b"waiting until another build has ended\n"
_TOO_LONG = "the build was ended: it took longer than {} minutes\n"


def run(
    config: Config,
    body: dict[str, Any],
    descriptors: Sequence[int],
    connection: socket.socket,
) -> dict[str, Any]:
    """Run the program to its end; its `exit_code`, negative for a signal.

    Waits for a build user that runs no other build.

    Args:
        body: `command`, a list of words; `build`, the folder below `builds/`, in whose `work` it
            runs; `environment`.
        descriptors: one file, for its output.

    Raises:
        Refused: there is no build user, or the request is malformed.
    """
    if not config.build_users:
        raise Refused(
            "no_build_user",
            "the runner has no build user",
            "name one as `build_user` in /etc/torchyard/runner.json",
        )
    words, environment = _words(body.get("command")), body.get("environment") or {}
    if len(descriptors) != 1:
        raise Refused("bad_request", "one file for the output is wanted")
    if not isinstance(environment, dict) or not all(
        isinstance(value, str) for value in environment.values()
    ):
        raise Refused("bad_request", "`environment` is not a mapping of names to texts")
    with (
        _free_account(config, descriptors[0], connection) as account,
        scratch.let_build(config, account, body.get("build")) as folder,
        scratch.new_home(config, account) as home,
    ):
        variables = {"PATH": _PATH, "LANG": "C.UTF-8", **environment, "HOME": str(home)}
        variables["TMPDIR"] = str(home / scratch.TEMPORARY)
        limits = config.build_limits
        name = f"build-{account.name}"
        group = cgroups.make(
            name,
            0,
            account.uid,
            account.gid,
            {"memory_bytes": limits.memory_bytes, "processes": limits.processes},
        )
        child = os.fork()
        if child == 0:
            _exec(account, group, folder, words, variables, descriptors[0], limits)
        try:
            status = _wait(child, connection, limits.minutes * 60, descriptors[0], limits)
            return {"exit_code": os.waitstatus_to_exitcode(status)}
        finally:
            # Before its folder is closed: what it left there is all that it can do.
            _end_processes(account)
            cgroups.remove(name, 0)


def _words(value: Any) -> list[str]:
    if (
        not isinstance(value, list)
        or not 0 < len(value) <= _MOST_WORDS
        or not all(isinstance(word, str) and "\0" not in word for word in value)
        or not value[0].startswith("/")
    ):
        raise Refused("bad_request", "`command` is not a list of words that begins with a path")
    return value


@contextmanager
def _free_account(config: Config, output: int, connection: socket.socket) -> Iterator[Account]:
    """A build user that runs no other build and nothing else, for the length of the block."""
    has_said = False
    while True:
        for name in config.build_users:
            account = accounts.get_by_name(config, name)
            with locks.held_if_free(config.state / f"build-{name}.lock") as is_free:
                if is_free:
                    _end_processes(account)
                    yield account
                    return
        if not has_said:
            os.write(output, _WAITING)
            has_said = True
        if select.select([connection], [], [], _POLL_S)[0]:
            raise messages.BadMessage("the server went away")


def _end_processes(account: Account) -> None:
    """End every process of the account, in whatever session or cgroup.

    Raises:
        Refused: one does not end.
    """
    deadline = time.monotonic() + _END_LIMIT_S
    while True:
        child = os.fork()
        if child == 0:
            try:
                accounts.become(account)
                # All at once, so that none starts another meanwhile; kill(2): all but this one.
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        if not _has_processes(account):
            return
        if time.monotonic() > deadline:
            raise Refused(
                "account_busy",
                f"processes of the build user `{account.name}` do not end",
                f"see `ps -u {account.name}`",
            )
        time.sleep(0.02)


def _has_processes(account: Account) -> bool:
    """Whether one of its processes has not ended. A process may hide the owner of its folder."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/status", "rb") as file:
                lines = dict(line.partition(b":")[::2] for line in file.read().splitlines())
        except OSError:
            continue
        uids = set(map(int, lines[b"Uid"].split()))
        if account.uid in uids and lines[b"State"].split()[0] not in (b"Z", b"X"):
            return True
    return False


def _exec(
    account: Account,
    group: Path | None,
    folder: Path,
    words: list[str],
    variables: dict[str, str],
    output: int,
    limits: BuildLimits,
) -> None:
    try:
        is_limited = cgroups.enter(group)
        os.setsid()
        for signum in (signal.SIGPIPE, signal.SIGTERM, signal.SIGALRM, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.umask(0o022)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Of the account, which has no other processes.
        resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))
        if not is_limited:
            # Of each process: without a cgroup, nothing limits them together.
            resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
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


def _wait(
    child: int, connection: socket.socket, limit_s: float, output: int, limits: BuildLimits
) -> int:
    """The child's wait status; it is killed after the limit, or if the other end hangs up."""
    ended = os.pidfd_open(child)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(connection, select.POLLIN | select.POLLHUP)
    deadline = time.monotonic() + limit_s
    try:
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            ready = {descriptor for descriptor, _ in poller.poll(int(left_s * 1000) + 1)}
            if ended in ready:
                return os.waitpid(child, 0)[1]
            if ready or left_s == 0.0:
                os.kill(child, signal.SIGKILL)
                status = os.waitpid(child, 0)[1]
                if ready:
                    raise messages.BadMessage("the server went away")
                os.write(output, _TOO_LONG.format(limits.minutes).encode())
                return status
    finally:
        os.close(ended)
