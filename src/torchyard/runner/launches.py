"""Start, watch and signal the workers of an attempt.

Owns: the record of what was launched, the worker's process from fork to exec, its cgroup.
Leaves: the account to accounts.py, folders to scratch.py, everything that the worker does to it.
Always: an attempt belongs to one account for good; only what this runner launched is signalled,
and that as the account itself, so that the kernel refuses every other process.
"""

from __future__ import annotations

import json
import os
import pwd
import resource
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.runner import cgroups, scratch
from torchyard.runner.accounts import Account, become
from torchyard.runner.config import Config, Refused
from torchyard.shared import locks, processes
from torchyard.shared.node_records import SAFELY, is_running, receipt

# In the environment of every worker that was launched here, and of no other process.
VARIABLE = "TORCHYARD_LAUNCH"
_RECORDS = "attempts"
_RESET = (
    *(signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGXFSZ),
    *(signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM),
)
_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EXEC_FAILED = 127


@dataclass(frozen=True)
class Launch:
    """One node of an attempt, checked.

    `worker` is the hash of the worker's program. `plan` is written for the worker, unread.
    `limits` are those of the node's cgroup; see cgroups.py.
    """

    attempt: str
    node: int
    worker: str
    plan: str
    limits: Mapping[str, int]


def start(
    config: Config, account: Account, launch: Launch, descriptors: Sequence[int]
) -> dict[str, int]:
    """Start the node's worker unless the one that was started still runs; its pid and start_time.

    Args:
        descriptors: locks of devices, which the worker keeps open.

    Raises:
        Refused: the attempt is another account's, or the worker can't be started.
    """
    program = scratch.worker_program(config, launch.worker)
    with _record(config, launch.attempt) as record:
        if record.setdefault("account", account.name) != account.name:
            raise Refused("not_yours", f"attempt `{launch.attempt}` is another account's")
        nodes = record.setdefault("nodes", {})
        before = nodes.get(str(launch.node), {})
        if is_running(before):
            return receipt(before)
        folder = scratch.make(config, account, launch.attempt)
        home = scratch.home(config, account)
        words = [config.python, "-I", "-S", str(program)]
        words += ["--plan", str(config.scratch / launch.attempt / "plan.json")]
        words += ["--node", str(launch.node)]
        environment = _environment(config, account, home, launch)
        try:
            pid = _spawn(config, account, launch, folder, words, environment, descriptors)
        finally:
            os.close(folder)
        nodes[str(launch.node)] = {"pid": pid, "start_time": processes.start_time(pid)}
        return receipt(nodes[str(launch.node)])


def account_of(config: Config, attempt: str) -> str:
    """The account that the attempt belongs to; empty for one that was never launched here."""
    try:
        body = json.loads((config.state / _RECORDS / f"{attempt}.json").read_text())
    except (FileNotFoundError, ValueError):
        return ""
    return str(body.get("account", ""))


def launched(config: Config, attempt: str) -> dict[str, dict[str, int]]:
    """pid and start_time of what was launched, by node."""
    try:
        body = json.loads((config.state / _RECORDS / f"{attempt}.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {node: receipt(process) for node, process in body.get("nodes", {}).items()}


def forget(config: Config, attempt: str) -> None:
    """Drop the record, after the attempt's folder is gone."""
    (config.state / _RECORDS / f"{attempt}.json").unlink(missing_ok=True)
    (config.state / _RECORDS / f"{attempt}.lock").unlink(missing_ok=True)


def signal_process(attempt: str, node: int, process: Mapping[str, Any], signum: int) -> bool:
    """Signal a worker of the attempt; False if there is no such process. Called as the account.

    Raises:
        Refused: the process was not launched for this node, or the signal is not one that ends it.
    """
    if signum not in _SIGNALS:
        raise Refused("bad_request", f"signal {signum} is neither SIGTERM nor SIGKILL")
    target = receipt(process)
    if not is_running(target):
        return False
    if not _is_launched_for(target["pid"], attempt, node):
        raise Refused("not_yours", f"process {target['pid']} is not a worker of `{attempt}`")
    processes.send(target["pid"], target["start_time"], signum)
    return True


def _is_launched_for(pid: int, attempt: str, node: int) -> bool:
    variable = f"{VARIABLE}={attempt}:{node}".encode()
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return variable in file.read().split(b"\0")
    except OSError:
        return False


@contextmanager
def _record(config: Config, attempt: str) -> Iterator[dict[str, Any]]:
    """The attempt's record, locked; written if the block changes it."""
    folder = config.state / _RECORDS
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{attempt}.json"
    with locks.hold(folder / f"{attempt}.lock"):
        try:
            body: dict[str, Any] = json.loads(file.read_text())
        except (FileNotFoundError, ValueError):
            body = {}
        yield body
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.write_text(json.dumps(body))
        draft.replace(file)


def _environment(config: Config, account: Account, home: Path, launch: Launch) -> dict[str, str]:
    return {
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        **config.environment,
        "HOME": str(home),
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": "/bin/sh",
        VARIABLE: f"{launch.attempt}:{launch.node}",
    }


def _spawn(
    config: Config,
    account: Account,
    launch: Launch,
    folder: int,
    words: list[str],
    environment: dict[str, str],
    descriptors: Sequence[int],
) -> int:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    group = cgroups.make(launch.attempt, launch.node, account.uid, account.gid, launch.limits)
    pid = os.fork()
    if pid == 0:
        try:
            cgroups.enter(group)
            _prepare(config, account)
            _write_files(folder, launch)
            _keep_only(folder, writing, descriptors)
            os.execve(words[0], words, environment)
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode()[:1000])
        finally:
            os._exit(_EXEC_FAILED)
    os.close(writing)
    with open(reading, "rb") as reader:
        message = reader.read().decode(errors="replace")
    if message:
        os.waitpid(pid, 0)
        raise Refused("launch_failed", f"the worker could not be started: {message}")
    return pid


def _prepare(config: Config, account: Account) -> None:
    """Become the account, in a session and with signals and limits of its own."""
    os.setsid()
    for signum in _RESET:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = config.open_files if limit == resource.RLIM_INFINITY else min(config.open_files, limit)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        Path("/proc/self/oom_score_adj").write_text("0")
    except OSError:
        pass  # the unit protects the runner from the OOM killer; a container may not let go of it
    os.umask(config.umask)
    become(account)


def _write_files(folder: int, launch: Launch) -> None:
    """The plan and the node's folder, written as the account below its own scratch folder."""
    os.fchdir(folder)
    draft = f"plan.json.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(draft, flags, 0o600, dir_fd=folder), "w") as file:
        file.write(launch.plan)
    os.rename(draft, "plan.json", src_dir_fd=folder, dst_dir_fd=folder)
    name = f"node-{launch.node}"
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        pass
    node = os.open(name, SAFELY | os.O_DIRECTORY, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    log = os.open("worker.log", flags, 0o600, dir_fd=node)
    os.set_blocking(log, True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _keep_only(folder: int, writing: int, descriptors: Sequence[int]) -> None:
    """Close all but the standard streams and the locks; those stay open over exec."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        elif descriptor > 2 and descriptor != writing:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the listing's own


def peer_uid(connection: socket.socket) -> int:
    """The Unix user at the other end. Source: unix(7), SO_PEERCRED."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little", signed=True)


def names_of(uids: Sequence[int]) -> list[str]:
    """User names for messages."""
    names = []
    for uid in uids:
        try:
            names.append(pwd.getpwuid(uid).pw_name)
        except KeyError:
            names.append(str(uid))
    return names
