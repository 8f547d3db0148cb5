"""Locks of devices: each belongs to one attempt at a time on the whole machine.

Owns: the folder that all servers and Unix users of a machine share, one file per device, its lock.
Leaves: which devices exist to devices.py, passing the locks to workers to local.py.
Always: a lock belongs to an open file (flock), so it lasts exactly as long as the processes that
inherited the file; a crash leaves none behind. Only regular files of that folder are opened,
created or truncated, and no link is followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import Conflict
from torchyard.executors.devices import Device
from torchyard.shared import locks

VARIABLE = "TORCHYARD_DEVICE_LOCKS"
_NAME = "torchyard-devices"
_SHARED_FOLDERS = (Path("/run/lock"), Path("/tmp"))
_FOR_ALL = stat.S_ISVTX | 0o777
_MOST_BYTES = 4096
# The longest time between creating the folder and opening it to all.
_CREATION_LIMIT_S = 2.0


@dataclass(frozen=True)
class LockedDevice:
    """A device and the open file that holds its lock, for every process that inherits the file."""

    device: Device
    descriptor: int


def folder(environ: Mapping[str, str]) -> Path:
    """Where the locks are: the same folder for every server and user of a machine."""
    configured = environ.get(VARIABLE)
    if configured:
        return Path(configured).absolute()
    # By its mode and not by this user's permissions: root would choose another folder.
    shared = (path for path in _SHARED_FOLDERS if _is_for_all(path))
    return next(shared, _SHARED_FOLDERS[-1]) / _NAME


class DeviceLocks:
    """
    Args:
        folder: made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, devices: Sequence[Device], count: int, holder: str = "") -> list[LockedDevice]:
        """Lock the first `count` devices that are free; none when there are too few.

        Args:
            holder: shown to others who want them.

        Raises:
            Conflict: the folder or a file in it is not safe to use.
        """
        locks: list[LockedDevice] = []
        for device in devices:
            if len(locks) == count:
                break
            descriptor = self._lock(device)
            if descriptor is not None:
                _record_holder(descriptor, holder)
                locks.append(LockedDevice(device, descriptor))
        if len(locks) < count:
            give_back(locks)
            return []
        return locks

    def free(self, devices: Sequence[Device]) -> list[Device]:
        """The devices that nobody holds at the moment."""
        free = []
        for device in devices:
            descriptor = self._lock(device)
            if descriptor is not None:
                os.close(descriptor)
                free.append(device)
        return free

    def holder(self, device: Device) -> str:
        """The current holder as it described itself, or the last one."""
        opened = self._open(device)
        if opened is None:
            return ""
        try:
            body: Any = json.loads(os.pread(opened, _MOST_BYTES, 0) or b"{}")
        except (OSError, ValueError):
            return ""
        finally:
            os.close(opened)
        holder = body.get("holder") if isinstance(body, dict) else ""
        return holder if isinstance(holder, str) else ""

    def _lock(self, device: Device) -> int | None:
        opened = self._open(device)
        if opened is None:
            return None
        try:
            if locks.try_lock(opened) and _is_current(opened, self._folder / _file_name(device)):
                return opened
        except OSError:
            os.close(opened)
            raise
        os.close(opened)
        return None

    def _open(self, device: Device) -> int | None:
        """The device's file; None while another user is creating it."""
        _check_folder(self._folder)
        path = self._folder / _file_name(device)
        # Without O_CREAT first: fs.protected_regular forbids it for other people's files.
        safely = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        for flags in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR):
            try:
                opened = os.open(path, flags | safely, 0o666)
            except (FileNotFoundError, FileExistsError, PermissionError):
                continue
            except OSError as error:
                raise _unsafe(path, "is not a regular file") from error
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                os.close(opened)
                raise _unsafe(path, "is not a regular file")
            if flags & os.O_CREAT:
                os.fchmod(opened, 0o666)  # whatever the umask is
            return opened
        if (
            not os.path.lexists(path)
            and time.time() - os.stat(self._folder).st_ctime > _CREATION_LIMIT_S
        ):
            raise _unsafe(self._folder, "may not be written to by everybody")
        return None


def give_back(locks: Sequence[LockedDevice]) -> None:
    """Close the files here; what a worker inherited stays locked."""
    for lock in locks:
        os.close(lock.descriptor)


def _file_name(device: Device) -> str:
    # A vendor's index may name another device after a restart; a UUID is a fine file name.
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", device.uuid):
        return f"{device.kind}-{device.uuid}"
    return f"{device.kind}-{hashlib.sha256(device.uuid.encode()).hexdigest()[:32]}"


def _record_holder(descriptor: int, holder: str) -> None:
    try:
        os.ftruncate(descriptor, 0)
        text = json.dumps({"holder": holder[:1000], "pid": os.getpid(), "uid": os.getuid()})
        os.pwrite(descriptor, text.encode(), 0)
    except OSError:
        pass  # opened for reading only, or a full disk: the lock holds all the same


def _is_current(opened: int, path: Path) -> bool:
    """Whether the locked file is the one that others will open."""
    try:
        on_disk = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    locked = os.fstat(opened)
    return (locked.st_dev, locked.st_ino) == (on_disk.st_dev, on_disk.st_ino)


def _check_folder(path: Path) -> None:
    """Make sure that it is a folder and no link, open to all and with the sticky bit."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        try:
            # Sticky from its first moment, for others who look before the next step.
            os.mkdir(path, _FOR_ALL)
        except FileExistsError:
            pass
        status = os.stat(path, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        raise _unsafe(path, "is not a folder")
    # Whatever the umask is, and also where a server died between the two steps.
    if status.st_uid == os.getuid() and path.name == _NAME and not _is_for_all(path):
        os.chmod(path, _FOR_ALL)
    if status.st_uid not in (0, os.getuid()) and not status.st_mode & stat.S_ISVTX:
        # Anyone who may write there could remove the files of others.
        raise _unsafe(path, "has no sticky bit")


def _is_for_all(path: Path) -> bool:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == _FOR_ALL


def _unsafe(path: Path, reason: str) -> Conflict:
    return Conflict(
        f"`{path}`, which keeps devices from being shared by accident, {reason}",
        f"ask root to remove it, or set another folder in {VARIABLE} for every server here",
        code="device_locks",
    )
