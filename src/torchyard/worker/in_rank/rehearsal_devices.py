"""The devices of a rehearsal: pretended GPUs, each of which is the CPU.

Owns: how many GPUs a rehearsal pretends, the current one, the CPU in place of each.
Leaves: the functions that take and return devices to rehearsal_torch.py.
Always: inside torch every answer is the truth, so that a rehearsal computes exactly as the same
script written for the CPU does; outside it tensors are on the GPU that the script named.
"""

from __future__ import annotations

import os
import sys

MYPY = False
if MYPY:
    from typing import Any

_VARIABLE = "TORCHYARD_REHEARSAL"


class Devices:
    """The GPUs that a script of this process sees. `torch` is the module."""

    def __init__(self, torch: Any) -> None:
        self.count = max(1, int(os.environ.get(_VARIABLE) or 1))
        self.cpu = torch.device("cpu")
        self._kind = torch.device
        self._devices = [torch.device("cuda", index) for index in range(self.count)]
        # The index that the script named last: its tensors are there, as far as it is told.
        self.current = 0

    def plain(self, device: Any) -> Any:
        """The CPU in place of a GPU; anything else as it is.

        Raises:
            RuntimeError: there would be no such GPU.
        """
        kind = type(device)
        if kind is str:
            if not device.startswith("cuda"):
                return device
            index = self._kind(device).index
        elif kind is int:
            index = device
        elif kind is self._kind:
            if device.type != "cuda":
                return device
            index = device.index
        else:
            return device
        if index is not None:
            self.note(index)
        return self.cpu

    def note(self, index: int) -> None:
        """Note that the script means the GPU of this number.

        Raises:
            RuntimeError: there would be no such GPU.
        """
        if not 0 <= index < self.count:
            raise RuntimeError(
                f"CUDA error: invalid device ordinal: cuda:{index} is meant, and this rehearsal "
                f"has as many GPUs on a node as the job's compute and processes ask for: "
                f"{self.count}"
            )
        self.current = index

    def index_of(self, device: Any) -> int:
        """The number of the GPU that a call means; the current one when it names none."""
        if device is None:
            return self.current
        if isinstance(device, str):
            device = self._kind(device)
        index = device if isinstance(device, int) else device.index
        if index is None or index == -1:
            return self.current
        if not 0 <= index < self.count:
            self.note(index)
        return int(index)

    def device_for_script(self) -> Any:
        """The device that a tensor of the script's is on, as far as the script is told."""
        return self._devices[self.current]


def asked_by_torch(depth: int = 2) -> bool:
    """Whether the caller of the function that calls this is part of torch."""
    name = sys._getframe(depth).f_globals.get("__name__") or ""
    return name == "torch" or name.startswith("torch.")
