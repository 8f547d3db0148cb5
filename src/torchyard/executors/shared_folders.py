"""The folder that a cluster's nodes and the server both see, where no network leads to the server.

Owns: the server's folder in it, the folders of attempts, the worker's program there.
Leaves: what goes through it to folder_gate.py and shared/folder_link/.
Always: only the server's user can enter; it is that of the nodes' jobs, too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from torchyard.base.files import write_atomically
from torchyard.executors.executor import EngineRefused
from torchyard.shared.folder_link import blocks

KEY = "shared_folder"
"""Of a cluster's settings."""
_HINT = "name a folder that the server and all nodes see: `torchyard: {shared_folder: /path}`"
_SQUASHED = (
    "the file system gives what this user writes to another user (`root_squash` of NFS does that): "
    "run the server as an ordinary user, whose files stay its own"
)


def server_folder(shared: str, server_id: str) -> Path:
    """This server's part of the shared folder; others have theirs beside it."""
    return Path(shared) / f"torchyard-{server_id[:16] or 'server'}"


def attempt_url(shared: str, server_id: str, attempt_id: str) -> str:
    """The address at which an attempt's nodes find the server."""
    return blocks.url_of(server_folder(shared, server_id) / attempt_id)


def prepare(shared: str, server_id: str) -> Path:
    """The server's part, made when it is not there, and found usable.

    Raises:
        EngineRefused: it can't be used, and why.
    """
    folder = server_folder(shared, server_id)
    if not folder.parent.is_dir():
        raise EngineRefused(f"the shared folder `{shared}` is not a folder on the server", _HINT)
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        with contextlib.suppress(FileExistsError):
            (folder / blocks.WORKERS).mkdir(mode=0o700)
        blocks.check_private(folder)
        blocks.check_private(folder / blocks.WORKERS)
        probe = folder / f".{secrets.token_hex(8)}.new"
        probe.touch(0o600, exist_ok=False)
        is_mine = probe.lstat().st_uid == os.geteuid()
        probe.unlink()
    except blocks.Forged as error:
        hint = _SQUASHED if folder.lstat().st_uid != os.geteuid() else f"remove `{folder}`"
        raise EngineRefused(f"the shared folder `{shared}` can't be used: {error}", hint) from error
    except OSError as error:
        raise EngineRefused(
            f"the server can't write to the shared folder `{shared}`: {error.strerror}", _HINT
        ) from error
    if not is_mine:
        raise EngineRefused(f"the shared folder `{shared}` can't be used", _SQUASHED)
    return folder


def add_worker(folder: Path, program: Path, sha256: str) -> None:
    """Put the worker's program there, for nodes that have none."""
    target = folder / blocks.WORKERS / f"{sha256}.pyz"
    if target.exists() and target.stat().st_size == program.stat().st_size:
        return
    with write_atomically(target, mode=0o600) as file, open(program, "rb") as source:
        shutil.copyfileobj(source, file)


def add_attempt(folder: Path, attempt_id: str) -> None:
    """Make the folder of an attempt that is to be launched."""
    for each in (folder / attempt_id, folder / attempt_id / blocks.REQUESTS):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=0o700)
        blocks.check_private(each)


def remove_attempt(folder: Path, attempt_id: str) -> None:
    shutil.rmtree(folder / attempt_id, ignore_errors=True)
