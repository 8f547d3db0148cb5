"""Devices, each for one attempt at a time on the whole machine.

Owns: the folder that all servers and Unix users of a machine share, one file a device, its lock.
Leaves: which devices there are to devices.py, handing the locks to workers to local.py.
Always: a lock is the kernel's (flock) and belongs to an open file, so it lives exactly as long
as somebody who inherited it; nothing is left over by a crash. Nothing is followed, created or
truncated that is not a plain file of that folder.
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
# What another user needs between making the folder and opening it to all, at the most.
_MADE_IN_S = 2.0


@dataclass(frozen=True)
class Held:
    """A device and the open file that holds its lock; whoever inherits the file holds it too."""

    device: Device
    descriptor: int


def folder(environ: Mapping[str, str]) -> Path:
    """Where the locks are: the same for every server of a machine, whoever runs it."""
    chosen = environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    # By its mode and not by what this user may do: root would find another folder than others.
    shared = (place for place in _SHARED_FOLDERS if _is_for_all(place))
    return next(shared, _SHARED_FOLDERS[-1]) / _NAME


class DeviceLocks:
    """
    Args:
        place: the folder; made when it is not there.
    """

    def __init__(self, place: Path) -> None:
        self._place = place

    def take(self, devices: Sequence[Device], count: int, holder: str = "") -> list[Held]:
        """Lock `count` of the devices, the first that are free; none when there are too few.

        Args:
            holder: told to whoever asks who has them.

        Raises:
            Conflict: the folder is not what it has to be.
        """
        held: list[Held] = []
        for device in devices:
            if len(held) == count:
                break
            descriptor = self._lock(device)
            if descriptor is not None:
                _tell(descriptor, holder)
                held.append(Held(device, descriptor))
        if len(held) < count:
            give_back(held)
            return []
        return held

    def free(self, devices: Sequence[Device]) -> list[Device]:
        """Those that nobody holds at the moment."""
        free = []
        for device in devices:
            descriptor = self._lock(device)
            if descriptor is not None:
                os.close(descriptor)
                free.append(device)
        return free

    def holder(self, device: Device) -> str:
        """What the one who has it, or had it last, said of itself."""
        opened = self._open(device)
        if opened is None:
            return ""
        try:
            body: Any = json.loads(os.pread(opened, _MOST_BYTES, 0) or b"{}")
        except (OSError, ValueError):
            return ""
        finally:
            os.close(opened)
        said = body.get("holder") if isinstance(body, dict) else ""
        return said if isinstance(said, str) else ""

    def _lock(self, device: Device) -> int | None:
        opened = self._open(device)
        if opened is None:
            return None
        try:
            if locks.try_lock(opened) and _is_still(opened, self._place / _file_name(device)):
                return opened
        except OSError:
            os.close(opened)
            raise
        os.close(opened)
        return None

    def _open(self, device: Device) -> int | None:
        """The device's file; None when another user is making it just now."""
        _check_folder(self._place)
        path = self._place / _file_name(device)
        # Without O_CREAT first: fs.protected_regular forbids it for other people's files.
        safely = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        for flags in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR):
            try:
                opened = os.open(path, flags | safely, 0o666)
            except (FileNotFoundError, FileExistsError, PermissionError):
                continue
            except OSError as error:
                raise _wrong(path, "is no plain file") from error
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                os.close(opened)
                raise _wrong(path, "is no plain file")
            if flags & os.O_CREAT:
                os.fchmod(opened, 0o666)  # whatever the umask is
            return opened
        if not os.path.lexists(path) and time.time() - os.stat(self._place).st_ctime > _MADE_IN_S:
            raise _wrong(self._place, "may not be written to by everybody")
        return None


def give_back(held: Sequence[Held]) -> None:
    """Close the files here; what a worker inherited stays locked."""
    for one in held:
        os.close(one.descriptor)


def _file_name(device: Device) -> str:
    # A vendor's index may name another device after a restart; a UUID is a fine file name.
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", device.uuid):
        return f"{device.kind}-{device.uuid}"
    return f"{device.kind}-{hashlib.sha256(device.uuid.encode()).hexdigest()[:32]}"


def _tell(descriptor: int, holder: str) -> None:
    try:
        os.ftruncate(descriptor, 0)
        text = json.dumps({"holder": holder[:1000], "pid": os.getpid(), "uid": os.getuid()})
        os.pwrite(descriptor, text.encode(), 0)
    except OSError:
        pass  # opened for reading only, or a full disk: the lock holds all the same


def _is_still(opened: int, path: Path) -> bool:
    """Whether the file that was locked is the one that others will find."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    own = os.fstat(opened)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _check_folder(place: Path) -> None:
    """Be there, a folder and no link, open to all and with the sticky bit."""
    try:
        there = os.stat(place, follow_symlinks=False)
    except FileNotFoundError:
        try:
            # Sticky from its first moment, for others who look before the next step.
            os.mkdir(place, _FOR_ALL)
        except FileExistsError:
            pass
        there = os.stat(place, follow_symlinks=False)
    if not stat.S_ISDIR(there.st_mode):
        raise _wrong(place, "is no folder")
    # Whatever the umask is, and also where a server died between the two steps.
    if there.st_uid == os.getuid() and place.name == _NAME and not _is_for_all(place):
        os.chmod(place, _FOR_ALL)
    if there.st_uid not in (0, os.getuid()) and not there.st_mode & stat.S_ISVTX:
        # Whoever may write there could take away the files of others.
        raise _wrong(place, "has no sticky bit")


def _is_for_all(place: Path) -> bool:
    try:
        there = os.stat(place, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(there.st_mode) and stat.S_IMODE(there.st_mode) == _FOR_ALL


def _wrong(path: Path, why: str) -> Conflict:
    return Conflict(
        f"`{path}`, which keeps devices from being shared by accident, {why}",
        f"ask root to remove it, or name another folder in {VARIABLE} for every server here",
        code="device_locks",
    )
