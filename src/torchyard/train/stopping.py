"""Whether training should stop: the job is preempted, canceled or out of time.

Owns: the signal by which engines and torchyard's worker say so, and the agreement of all ranks.
Leaves: saving and ending to loop.
Always: all ranks get the same answer, so none waits in a collective for one that has stopped. It
imports torch only after the script has.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

_requested = threading.Event()
_previous: object = None
_is_listening = False
# The process group that the answer belongs to, and the one by which ranks agree.
_group: tuple[Any, Any] | None = None


def listen() -> None:
    """From now on SIGTERM is remembered and doesn't end this process; in the main thread only."""
    global _previous, _is_listening
    if not _is_listening and threading.current_thread() is threading.main_thread():
        _previous = signal.signal(signal.SIGTERM, _remember)
        _is_listening = True


def should_stop() -> bool:
    """Whether one of the ranks was told to stop; every rank asks at the same steps."""
    listen()
    if "torch.distributed" not in sys.modules:
        return _requested.is_set()
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return _requested.is_set()
    requested = torch.tensor([int(_requested.is_set())])
    dist.all_reduce(requested, dist.ReduceOp.MAX, group=_cpu_group())
    return bool(requested.item())


def _cpu_group() -> Any:
    """A group that never waits for a GPU: reading an answer from one would end what runs ahead."""
    global _group
    import torch.distributed as dist

    if _group is None or _group[0] is not dist.group.WORLD:
        has_gloo = "gloo" in dist.get_backend_config()
        _group = (dist.group.WORLD, None if has_gloo else dist.new_group(backend="gloo"))
    return _group[1]


def stop() -> None:
    """End this process as the signal would have ended it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _remember(number: int, frame: FrameType | None) -> None:
    _requested.set()
    if callable(_previous):
        _previous(number, frame)
