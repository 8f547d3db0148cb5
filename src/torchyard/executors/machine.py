"""The resources of this machine.

Owns: its cores, memory and devices; taking devices for nodes.
Leaves: finding GPUs to devices.py, locking them to device_locks.py.
Always: devices are listed once, and not before they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property

from torchyard.executors import devices as devices_of
from torchyard.executors.device_locks import DeviceLocks, LockedDevice, folder
from torchyard.executors.devices import Device


class Machine:
    """
    Args:
        environ: holds PATH, pretended devices and the folder of the locks.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._locks = DeviceLocks(folder(environ))

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """Every GPU, including those that MIG has split."""
        return devices_of.find(self._environ)

    @cached_property
    def whole_devices(self) -> tuple[Device, ...]:
        """The devices that a node can have."""
        return tuple(device for device in self.devices if not device.split)

    @property
    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    @property
    def memory_bytes(self) -> int:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def take(self, count: int, holder: str) -> list[LockedDevice]:
        """Lock that many devices of one vendor, or none."""
        for kind in dict.fromkeys(device.kind for device in self.whole_devices):
            device_locks = self._locks.take(
                [device for device in self.whole_devices if device.kind == kind], count, holder
            )
            if device_locks:
                return device_locks
        return []

    def free(self) -> list[Device]:
        """Devices that nobody on this machine holds."""
        return self._locks.free(self.whole_devices)

    def most_together(self) -> int:
        """The most devices that one job can have: they are all of one vendor."""
        kinds = [device.kind for device in self.whole_devices]
        return max(map(kinds.count, kinds), default=0)

    def holders(self) -> dict[int, str]:
        """The holder of each taken device, by index."""
        free = set(self.free())
        return {
            device.index: self._locks.holder(device)
            for device in self.whole_devices
            if device not in free
        }
