"""What training scripts import: checkpoints, and loops that go on where they were stopped.

    from torchyard.train import Loop, checkpoint, run

Owns: `checkpoint`, `Loop`, `Batches`, `run`, `should_stop`, `onnx`.
Leaves: starting ranks, uploading files and choosing when to stop to the platform.
Always: it works without the platform; torch is imported with what needs it, and by nothing else of
torchyard.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchyard.train import checkpoint, onnx, run
    from torchyard.train.batches import Batches
    from torchyard.train.loop import Loop
    from torchyard.train.stopping import should_stop

__all__ = ["Batches", "Loop", "checkpoint", "onnx", "run", "should_stop"]

_MODULES = {"Batches": "batches", "Loop": "loop", "should_stop": "stopping"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module `torchyard.train` has no attribute `{name}`")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, name)}")
    return getattr(module, name) if name in _MODULES else module
