"""The names of torch_ort, where ONNX Runtime's training can't be had.

Owns: ORTModule as a wrapper that is seen through: the same parameters, by the same names.
Leaves: running the module to torch.
Always: results are those of the module itself; what is not served raises with its name.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["DebugOptions", "LogLevel", "ORTModule"]

_SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class LogLevel(enum.IntEnum):
    """ONNX Runtime's."""

    VERBOSE = 0
    INFO = 1
    WARNING = 2
    ERROR = 3
    FATAL = 4


@dataclass
class DebugOptions:
    """Taken, and of no effect: nothing is exported that could be saved."""

    log_level: LogLevel = LogLevel.WARNING
    save_onnx: bool = False
    onnx_prefix: str = ""


class ORTModule(torch.nn.Module):
    """`module`, run by torch. Its parameters, buffers and keys are the module's own."""

    def __init__(self, module: torch.nn.Module, debug_options: DebugOptions | None = None) -> None:
        super().__init__()
        warnings.warn(
            "torchyard's torch_ort runs the module by torch itself, without ONNX Runtime",
            stacklevel=2,
        )
        # Past __setattr__, which would make it a child and change every name.
        self.__dict__["_original"] = module
        self.__dict__["training"] = module.training
        for name in _SHARED:
            self.__dict__[name] = module.__dict__[name]

    @property
    def module(self) -> torch.nn.Module:
        """What was wrapped."""
        original: torch.nn.Module = self.__dict__["_original"]
        return original

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.module(*inputs, **named)

    def train(self, mode: bool = True) -> ORTModule:
        self.module.train(mode)
        self.training = mode
        return self

    def state_dict(self, *arguments: Any, **named: Any) -> Any:
        return self.module.state_dict(*arguments, **named)

    def load_state_dict(self, *arguments: Any, **named: Any) -> Any:
        return self.module.load_state_dict(*arguments, **named)

    def _apply(self, change: Callable[..., Any], *more: Any, **named: Any) -> ORTModule:
        self.module._apply(change, *more, **named)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"torchyard's torch_ort has no `{name}`: it serves {', '.join(__all__)}. ONNX Runtime's "
        "training does not import beside this torch; `torch.compile` is today's way"
    )
