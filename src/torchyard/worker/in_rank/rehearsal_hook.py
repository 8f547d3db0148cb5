"""What every Python of a rehearsed rank runs at its start: waits for torch.

Owns: noticing imports: of torch, which is then made to take the CPU for every GPU, and of packages
that only a GPU can run.
Leaves: what is changed in torch to rehearsal_torch.py, what can't be to rehearsal_limits.py.
Always: a Python that never imports torch only compares a few names; torch itself is never
imported here; without the rank's variable nothing is done.
"""

from __future__ import annotations

import os
import sys

MYPY = False
if MYPY:
    from collections.abc import Callable, Sequence
    from typing import Any

VARIABLE = "TORCHYARD_REHEARSAL"
# Names of modules that are changed right after they were imported, and what changes them.
_CHANGED = {
    "torch": ("rehearsal_torch", "apply"),
    "torch.distributed.device_mesh": ("rehearsal_groups", "change_meshes"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": ("rehearsal_groups", "change_sharding"),
    "torch.utils.cpp_extension": ("rehearsal_limits", "refuse_cuda_extensions"),
    "deepspeed.ops.op_builder.fused_adam": ("rehearsal_deepspeed", "change_fused_adam"),
    "deepspeed.utils.timer": ("rehearsal_deepspeed", "leave_out_memory"),
}
# Packages whose kernels only a GPU runs. torch asks for triton by itself and does without.
_REFUSED = {
    "triton": "kernels in Triton run on a GPU only",
    "cupy": "CuPy computes on a GPU only",
    "pycuda": "PyCUDA's kernels run on a GPU only",
    "numba.cuda": "kernels of numba.cuda run on a GPU only",
    "flash_attn": "its attention kernels run on a GPU only",
    "transformer_engine": "its kernels run on a GPU only",
    "pynvml": "it reads the figures of a GPU",
}


class _Finder:
    """Comes first in `sys.meta_path`; answers for the names above alone."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name in _REFUSED:
            raise _part("rehearsal_limits").ModuleCannotBeRehearsed(
                f"module `{name}`: {_REFUSED[name]}", name=name
            )
        if name not in _CHANGED:
            return None
        spec = _from_others(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, *_CHANGED[name])
        return spec


class _Loader:
    """Loads as another does, and changes the module then."""

    def __init__(self, loader: Any, part: str, change: str) -> None:
        self._loader = loader
        self._part = part
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # As if we had never been there: resources and pickles ask for the loader.
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        change: Callable[[Any], None] = getattr(_part(self._part), self._change)
        change(module)


def install() -> None:
    """Wait for torch, if this process belongs to a rehearsed rank."""
    if os.environ.get(VARIABLE) and not any(finder is _Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder)


def _from_others(name: str, path: Sequence[str] | None, target: Any) -> Any:
    for finder in sys.meta_path:
        if finder is not _Finder:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
    return None


def _part(name: str) -> Any:
    """A module beside this one, wherever both lie."""
    package = __name__.rpartition(".")[0]
    return __import__(f"{package}.{name}", fromlist=["*"])
