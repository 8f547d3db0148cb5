"""The folders of attempts, builds, workers' programs and accounts' homes, below the node folder.

Owns: making, listing and removing them, opening a file that a worker left.
Leaves: what is in them to the workers; who may ask to service.py.
Always: the folders that hold them are root's, so nobody can put a link in the place of one; what is
inside is read as the account that owns it, which can read no more than it could anyway.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchyard.runner import accounts
from torchyard.runner.accounts import Account
from torchyard.runner.config import Config, Refused, check_only_root_writes
from torchyard.shared import access_lists
from torchyard.shared.node_records import SAFELY

_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_BUILD = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,149}")
_FILE = re.compile(r"(worker\.log|spool/history/[A-Za-z0-9._-]{1,100})")
_HASH = re.compile(r"[0-9a-f]{64}")
_WORKER_MOST_BYTES = 32 << 20
_BLOCK = 1 << 20
_REMOVE = "/bin/rm"
# In the folder of a build, and in a home.
WORK, TEMPORARY = "work", "tmp"
_MOST_FILES = 10_000
_FOLDER = SAFELY | os.O_DIRECTORY


def prepare(config: Config) -> None:
    """Make the folders that everything else is in.

    Raises:
        Refused: others than root could change them.
    """
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_only_root_writes(config.state)
    os.chmod(config.state, 0o700)
    config.node_folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    check_only_root_writes(config.node_folder)
    os.chmod(config.node_folder, 0o755)
    server = pwd.getpwnam(config.server_user)
    for name in ("server", "environments", "cache", "builds", "pythons"):
        # The server writes them, and jobs read them.
        folder = config.node_folder / name
        try:
            os.mkdir(folder, 0o755)
            os.chown(folder, server.pw_uid, server.pw_gid, follow_symlinks=False)
        except FileExistsError:
            pass
    if config.engine_user:
        _prepare_engines(config)
    for folder, mode in ((config.scratch, 0o711), (config.workers, 0o755), (config.homes, 0o711)):
        folder.mkdir(mode=mode, exist_ok=True)
        check_only_root_writes(folder)
        os.chmod(folder, mode)


def _prepare_engines(config: Config) -> None:
    """Close the engine user's folder to everybody else: Ray opens what is below it to all."""
    account = accounts.engine(config)
    try:
        os.mkdir(config.engines, 0o700)
    except FileExistsError:
        pass
    folder = os.open(config.engines, _FOLDER)
    try:
        os.fchown(folder, account.uid, account.gid)
        os.fchmod(folder, 0o700)
    finally:
        os.close(folder)


def checked_attempt(value: Any) -> str:
    """
    Raises:
        Refused: it can't be the name of an attempt.
    """
    if not isinstance(value, str) or not _ATTEMPT.fullmatch(value):
        raise Refused("bad_request", "the attempt has no valid name")
    return value


def make(config: Config, account: Account, attempt: str) -> int:
    """The attempt's folder, open; made for the account if it is not there.

    Raises:
        Refused: it is somebody else's.
    """
    path = config.scratch / attempt
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    folder = os.open(path, _FOLDER)
    status = os.fstat(folder)
    if status.st_uid == 0:
        os.fchown(folder, account.uid, account.gid)
    elif status.st_uid != account.uid:
        os.close(folder)
        raise Refused("not_yours", f"the folder of attempt `{attempt}` is another account's")
    return folder


def home(config: Config, account: Account) -> Path:
    """The account's home folder if it has one; else one below the node folder, made for it."""
    configured = Path(account.home)
    try:
        status = configured.stat()
        if (
            configured.is_absolute()
            and stat.S_ISDIR(status.st_mode)
            and status.st_uid == account.uid
        ):
            return configured
    except OSError:
        pass
    path = config.homes / account.name
    try:
        os.mkdir(path, 0o700)
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
    except FileExistsError:
        pass
    return path


@contextmanager
def new_home(config: Config, account: Account) -> Iterator[Path]:
    """An empty home for one build, which nothing outlives."""
    path = config.homes / account.name
    _remove_tree(path)
    os.mkdir(path, 0o700)
    os.mkdir(path / TEMPORARY, 0o700)
    for folder in (path / TEMPORARY, path):
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    try:
        yield path
    finally:
        _remove_tree(path)


@contextmanager
def let_build(config: Config, account: Account, name: Any) -> Iterator[Path]:
    """Let the account write into `work` of the server's folder of a build, during the block.

    Nobody but the server can enter it afterwards: a later build of the same account neither.

    Raises:
        Refused: it is not such a folder.
    """
    folder, work = _open_build(config, name)
    try:
        access_lists.let_read(folder, [account.uid])
        access_lists.let_write(work, [account.uid])
        yield config.builds / str(name) / WORK
    finally:
        access_lists.let_write(work, [])
        access_lists.let_read(folder, [])
        os.close(work)
        os.close(folder)


def remove_build(config: Config, name: str) -> bool:
    """Remove the folder of a build that has ended; False if something of it stays. As root.

    Raises:
        Refused: it is not such a folder.
    """
    if not _BUILD.fullmatch(name):
        raise Refused("bad_request", "the build has no valid name")
    return _remove_tree(config.builds / name)


def _open_build(config: Config, name: Any) -> tuple[int, int]:
    """The folder of a build and its `work`, open."""
    if not isinstance(name, str) or not _BUILD.fullmatch(name):
        raise Refused("bad_request", "the build has no valid name")
    folder = work = -1
    try:
        folder = os.open(config.builds / name, _FOLDER)
        work = os.open(WORK, _FOLDER, dir_fd=folder)
        if {os.fstat(folder).st_uid, os.fstat(work).st_uid} != {config.server_uid}:
            raise Refused("not_yours", f"the folder of build `{name}` is not the server's")
        return folder, work
    except BaseException as error:
        for descriptor in (folder, work):
            if descriptor >= 0:
                os.close(descriptor)
        if isinstance(error, OSError):
            raise Refused("not_found", f"build `{name}` has no folder") from error
        raise


def keep_worker(config: Config, descriptor: int) -> str:
    """Keep the worker's program for accounts to read; its SHA-256.

    Raises:
        Refused: it is too large.
    """
    draft = config.workers / f".{os.getpid()}"
    digest, size = hashlib.sha256(), 0
    try:
        with open(draft, "wb") as file:
            while block := os.read(descriptor, _BLOCK):
                size += len(block)
                if size > _WORKER_MOST_BYTES:
                    raise Refused("bad_request", "the worker's program is too large")
                digest.update(block)
                file.write(block)
        os.chmod(draft, 0o644)
        draft.replace(config.workers / f"worker-{digest.hexdigest()}.pyz")
    finally:
        draft.unlink(missing_ok=True)
    return digest.hexdigest()


def worker_program(config: Config, digest: Any) -> Path:
    """
    Raises:
        Refused: no such program was kept.
    """
    if not isinstance(digest, str) or not _HASH.fullmatch(digest):
        raise Refused("bad_request", "the worker's program has no valid name")
    path = config.workers / f"worker-{digest}.pyz"
    if not path.is_file():
        raise Refused("no_worker", "the worker's program is not there", "send it again")
    return path


def left_files(attempt_folder: int, node: int) -> Iterator[dict[str, Any]]:
    """path and size_bytes of what a server collects from a node. Called as the account."""
    for folder, prefix in ((f"node-{node}", ""), (f"node-{node}/spool/history", "spool/history/")):
        try:
            opened = os.open(folder, _FOLDER, dir_fd=attempt_folder)
        except OSError:
            continue
        try:
            for name in sorted(os.listdir(opened))[:_MOST_FILES]:
                if not _FILE.fullmatch(prefix + name):
                    continue
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield {"path": prefix + name, "size_bytes": status.st_size}
        finally:
            os.close(opened)


def open_left(attempt_folder: int, node: int, path: Any) -> int:
    """One of them, open for reading. Called as the account.

    Raises:
        Refused: it is none of them.
    """
    if not isinstance(path, str) or not _FILE.fullmatch(path) or ".." in path:
        raise Refused("bad_request", "no such file is handed out")
    *folders, name = [f"node-{node}", *path.split("/")]
    opened = os.dup(attempt_folder)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = inner
        descriptor = os.open(name, SAFELY, dir_fd=opened)
    except OSError as error:
        raise Refused("not_found", f"`{path}` can't be read: {error.strerror}") from error
    finally:
        os.close(opened)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused("not_found", f"`{path}` is not a regular file")
    return descriptor


def open_attempt(config: Config, attempt: str) -> int | None:
    """The attempt's folder; None when there is none."""
    try:
        return os.open(config.scratch / attempt, _FOLDER)
    except FileNotFoundError:
        return None


def attempts(config: Config) -> list[dict[str, Any]]:
    """name and mtime_s of every folder of an attempt."""
    folders = []
    with os.scandir(config.scratch) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and _ATTEMPT.fullmatch(entry.name):
                folders.append({"name": entry.name, "mtime_s": entry.stat().st_mtime})
    return sorted(folders, key=lambda item: str(item["name"]))


def size_bytes(attempt_folder: int) -> int:
    """What the folder's files take. Called as the account."""
    total = 0
    for _, _, names, folder in os.fwalk(".", dir_fd=attempt_folder, follow_symlinks=False):
        for name in names:
            try:
                total += os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
            except OSError:
                pass  # it was removed meanwhile
    return total


def empty(attempt_folder: int) -> None:
    """Remove all that is in the folder, as far as it goes. Called as the account."""
    for path, _, _, folder in os.fwalk(".", dir_fd=attempt_folder, follow_symlinks=False):
        # A read-only folder keeps what is in it, also from its owner.
        os.fchmod(folder, 0o700)
        del path
    for name in os.listdir(attempt_folder):
        _remove(name, attempt_folder)


def remove(config: Config, attempt: str) -> bool:
    """Remove the attempt's folder; False if something of it stays. Called as root.

    What the account could not remove itself, such as files of the ids of an image, goes now. No
    link is followed: each folder is opened by name in its parent, and what is opened is checked.
    """
    return _remove_tree(config.scratch / attempt)


def _remove_tree(path: Path) -> bool:
    assert shutil.rmtree.avoids_symlink_attacks
    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:  # folders in folders in folders, which `rm` minds less
        command = [_REMOVE, "-rf", "--one-file-system", "--", str(path)]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    return not os.path.lexists(path)


def _remove(name: str, folder: int) -> None:
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    except OSError:
        pass  # root removes what stays
