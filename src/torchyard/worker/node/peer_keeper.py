"""Keep copies of another node's checkpoints, and deliver them if that node is lost.

Owns: the folder of copies, how much may be in it, when their owner counts as lost.
Leaves: the connection to peer_channel.py, which checkpoints are copied to peer_sender.py.
Always: one owner writes, only below its folder, and only while there is space; a copy whose
manifest is not there is not delivered, nor is what the server has.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.shared.connection import Connection, Refused
from torchyard.shared.retry_delays import retry
from torchyard.worker.files.uploads import files_below, upload_file, utf8_path
from torchyard.worker.node import peer_channel
from torchyard.worker.node.checkpoint_delivery import target_of
from torchyard.worker.node.peer_channel import BadPeer, Channel, PeerGone
from torchyard.worker.node.peer_sender import (
    DONE,
    FILE,
    KEEP,
    MANIFEST,
    MOST_CHECKPOINTS,
    lower_priority,
)
from torchyard.worker.preflight.ports import HeldPort

# What the disk keeps free beside copies.
RESERVE_BYTES = 1 << 30
# An owner that keeps copies here says so every second, or sends one.
_LOST_AFTER_S = 10.0
_POLL_S = 0.2
_END_S = 1.0
_MOST_UNPROVED = 8
_MOST_PARTS, _MOST_PATH_BYTES = 16, 1000


@dataclass(frozen=True)
class Space:
    """`limit_bytes` is what the job may have on this node, 0 without a limit, `used_bytes` what its
    ranks have written.
    """

    limit_bytes: int = 0
    used_bytes: Callable[[], int] = lambda: 0
    reserve_bytes: int = RESERVE_BYTES


class PeerKeeper:
    """Accepts one owner at a time between `start` and `close`.

    Args:
        port: listens; it is closed with this.
        owner: the number of the node whose copies are kept.
    """

    def __init__(
        self,
        port: HeldPort,
        token: str,
        owner: int,
        folder: Path,
        space: Space,
        lost_after_s: float = _LOST_AFTER_S,
    ) -> None:
        self._port = port
        self._listener = port.listen()
        self._lost_after_s = lost_after_s
        self._token = token
        self.owner = owner
        self._folder = folder
        self._space = space
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._unproved = threading.Semaphore(_MOST_UNPROVED)
        self._heard_at = time.monotonic()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="peer-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Forget the owner; what it has copied stays."""
        self._closed = True
        self._port.stop_listening()
        self._port.close()
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        self._thread.join(_END_S)

    def is_needed(self, give_up: Callable[[], bool]) -> bool:
        """Wait until the owner has delivered by itself, or is lost and its copies are needed."""
        while complete_checkpoints(self._folder) and not give_up():
            if time.monotonic() > self._heard_at + self._lost_after_s:
                return True
            time.sleep(_POLL_S)
        return False

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(_POLL_S)  # such as no free descriptor
                continue
            if not self._unproved.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name="peer-copy", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        lower_priority()
        channel: Channel | None = None
        try:
            try:
                channel = peer_channel.accept(connection, self._token, self.owner)
            finally:
                self._unproved.release()
            with self._lock:
                # The owner has connected again: what the connection before still says is old.
                before, self._channel = self._channel, channel
            if before is not None:
                before.close()
            while not self._closed:
                self._answer(channel, channel.receive())
        except PeerGone:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            # The owner's newer connection has closed this one.
            if not self._closed and channel in (None, self._channel):
                print(f"copies of node {self.owner}: {error!r}", file=sys.stderr, flush=True)
        finally:
            connection.close()

    def _answer(self, channel: Channel, message: dict[str, Any]) -> None:
        self._heard_at = time.monotonic()
        kind = message["kind"]
        if kind == FILE:
            self._take(channel, _name(message["name"]), message["path"], int(message["size"]))
        elif kind == KEEP:
            names = {_name(name) for name in message["names"]}
            with self._current(channel):
                self._keep(names)
            channel.send({"held": [folder.name for folder in complete_checkpoints(self._folder)]})
        elif kind == DONE:
            with self._current(channel):
                self._keep(set())
            channel.send({})
        else:
            raise BadPeer("a message of another kind")

    @contextlib.contextmanager
    def _current(self, channel: Channel) -> Any:
        """Only the newest connection of the owner changes what is kept."""
        with self._lock:
            if self._channel is not channel:
                raise BadPeer("the owner has connected again")
            yield

    def _keep(self, names: set[str]) -> None:
        for folder in _folders(self._folder):
            if folder.name not in names or self._lack(0):
                shutil.rmtree(folder, ignore_errors=True)

    def _take(self, channel: Channel, name: str, path: object, size_bytes: int) -> None:
        target = self._folder / name / _relative(path)
        if size_bytes < 0:
            raise BadPeer("a file of a negative size")
        others = [folder for folder in _folders(self._folder) if folder.name != name]
        reason = self._lack(size_bytes)
        if len(others) >= MOST_CHECKPOINTS:
            reason = f"its peer keeps {MOST_CHECKPOINTS} already"
        if reason:
            shutil.rmtree(self._folder / name, ignore_errors=True)
            channel.send({"refused": reason})
            return
        # It is whole again when its manifest has come again.
        (self._folder / name / MANIFEST).unlink(missing_ok=True)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._folder / f".part-{threading.get_ident()}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(part, flags, 0o600), "wb", buffering=0) as file:
                channel.send({})

                def write(block: bytes) -> None:
                    self._heard_at = time.monotonic()
                    view = memoryview(block)
                    while view:
                        view = view[file.write(view) :]

                channel.receive_file(size_bytes, write)
            with self._current(channel):
                part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        channel.send({})

    def _lack(self, size_bytes: int) -> str:
        """Why there is no space for so much more; empty when there is."""
        free_bytes = shutil.disk_usage(self._existing()).free
        if free_bytes - size_bytes < self._space.reserve_bytes:
            return f"the disk of its peer has {free_bytes >> 20} MiB free"
        if not self._space.limit_bytes:
            return ""
        used_bytes = sum(os.stat(file).st_size for file in files_below(self._folder))
        left_bytes = self._space.limit_bytes - self._space.used_bytes() - used_bytes
        if left_bytes < size_bytes:
            return f"the job may write {max(left_bytes, 0) >> 20} MiB more on its peer"
        return ""

    def _existing(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder


def deliver(link: Connection, folder: Path, give_up: Callable[[], bool]) -> list[str]:
    """Deliver the copies below a folder as far as the server lacks them.

    Returns:
        The names of checkpoints of which something was missing there.

    Raises:
        OSError: the server is unreachable and `give_up` returned True.
    """
    listing = retry(lambda: link.call("GET", "/previous-outputs"), give_up)
    sizes = {str(file["path"]): file["size_bytes"] for file in listing["files"]
             if not file["output"]}  # fmt: skip
    names = []
    for checkpoint in complete_checkpoints(folder):
        manifest = checkpoint / MANIFEST
        files = [file for file in files_below(checkpoint) if file != manifest]
        missing = [
            file
            for file in [*files, manifest]
            if sizes.get(f"checkpoints/{utf8_path(file.relative_to(folder))}") != _size(file)
        ]
        if missing:
            names.append(checkpoint.name)
            _upload(link, folder, missing, give_up)
    return names


def complete_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints below a folder whose copy is complete."""
    return [each for each in _folders(folder) if (each / MANIFEST).is_file()]


def _upload(link: Connection, folder: Path, files: list[Path], give_up: Callable[[], bool]) -> None:
    refused = False
    for file in files:
        if refused and file.name == MANIFEST and file.parent.parent == folder:
            return  # the server must not hold one that looks whole and is not
        target = target_of(file.relative_to(folder))
        try:
            retry(lambda: upload_file(link, file, target), give_up)  # noqa: B023
        except Refused as refusal:
            refused = True
            text = json.dumps(refusal.body)[:500]
            print(f"{file}: {refusal.status} {text}", file=sys.stderr, flush=True)


def _folders(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [folder / name for name in names if not name.startswith(".")]


def _size(file: Path) -> int:
    return os.stat(file).st_size


def _name(name: object) -> str:
    """A folder directly below that of the copies."""
    relative = _relative(name)
    if len(relative.parts) != 1 or relative.name.startswith("."):
        raise BadPeer("the name of a checkpoint that is none")
    return relative.name


def _relative(path: object) -> Path:
    """A path that stays below the folder it is joined to."""
    if not isinstance(path, str) or len(path) > _MOST_PATH_BYTES or "\0" in path:
        raise BadPeer("a path that is none")
    parts = path.split("/")
    if len(parts) > _MOST_PARTS or any(part in ("", ".", "..") for part in parts):
        raise BadPeer("a path that leads elsewhere")
    return Path(*parts)
