"""Who this process is among the ranks.

Owns: the process group, its beginning and end.
Leaves: what is sent through it to collectives.py.
Always: the launcher's variables say who is who: torch's, or those of Open MPI; a process without
either is alone.
"""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class _Place:
    rank: int
    size: int
    local_rank: int
    local_size: int


_place: _Place | None = None
_began = False


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Join the other ranks; a second call changes nothing.

    Raises:
        NotImplementedError: a part of the ranks, or process sets, are asked for.
        RuntimeError: the launcher told a size but not where the ranks meet.
    """
    global _place, _began
    if comm or process_sets:
        raise NotImplementedError("horovod.torch.init: only all ranks together, no process sets")
    if _place is not None:
        return
    process_set = _read()
    if process_set.size > 1 and not dist.is_initialized():
        if "MASTER_ADDR" not in os.environ:
            raise RuntimeError("MASTER_ADDR is not set: start the ranks with torchyard or torchrun")
        if torch.cuda.is_available():
            torch.cuda.set_device(process_set.local_rank % torch.cuda.device_count())
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, rank=process_set.rank, world_size=process_set.size)
        _began = True
        # As Horovod's own: threads of the group that outlive the interpreter abort the process.
        atexit.register(shutdown)
    _place = process_set


def shutdown() -> None:
    """Leave the other ranks."""
    global _place, _began
    if _began and dist.is_initialized():
        dist.destroy_process_group()
    _place, _began = None, False


def is_initialized() -> bool:
    return _place is not None


def rank() -> int:
    return _here().rank


def size() -> int:
    return _here().size


def local_rank() -> int:
    return _here().local_rank


def local_size() -> int:
    return _here().local_size


def cross_rank() -> int:
    """The node's number."""
    return _here().rank // _here().local_size


def cross_size() -> int:
    """How many nodes there are."""
    return _here().size // _here().local_size


def is_homogeneous() -> bool:
    """Whether every node has as many ranks: torchyard's launchers see to it."""
    return True


def mpi_threads_supported() -> bool:
    return False


def mpi_enabled() -> bool:
    return False


def mpi_built() -> bool:
    return False


def gloo_enabled() -> bool:
    return dist.is_gloo_available()


def gloo_built() -> bool:
    return dist.is_gloo_available()


def nccl_built() -> int:
    """NCCL's version as one number, 0 without it."""
    if not dist.is_nccl_available() or not torch.cuda.is_available():
        return 0
    major, minor, patch = torch.cuda.nccl.version()
    return int(major) * 10000 + int(minor) * 100 + int(patch)


def cuda_built() -> bool:
    return torch.version.cuda is not None


def rocm_built() -> bool:
    return torch.version.hip is not None


def ddl_built() -> bool:
    return False


def _here() -> _Place:
    if _place is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _place


def _read() -> _Place:
    size = _number("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", 1)
    rank = _number("RANK", "OMPI_COMM_WORLD_RANK", 0)
    return _Place(
        rank,
        size,
        _number("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", rank),
        _number("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", size),
    )


def _number(name: str, mpi: str, default: int) -> int:
    return int(os.environ.get(mpi) or os.environ.get(name) or default)
