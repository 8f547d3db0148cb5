"""Export modules to ONNX, with their parity checked and recorded in the file.

    from torchyard.train import onnx

    report = onnx.export(model, images[:8], "outputs/onnx", optimize="extended")

Owns: `export`, its `Report` and `ExportError`; the program of the job that `yard model export-onnx`
submits.
Leaves: registering the folder to the platform: an output of `type: onnx_model` with a `name`.
Always: it works without the platform; torch, onnx and ONNX Runtime are imported by the calls that
need them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchyard.train.onnx.errors import ExportError
    from torchyard.train.onnx.exporting import Report, export

__all__ = ["ExportError", "Report", "export"]

_MODULES = {"ExportError": "errors", "Report": "exporting", "export": "exporting"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module `torchyard.train.onnx` has no attribute `{name}`")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
