"""The names of torch_ort over the torch and the ONNX Runtime of today.

Owns: ORTModule as a wrapper that is seen through: the same parameters, by the same names; which
way a call is run.
Leaves: answers by ONNX Runtime to inference, torch.compile to training, settings to options.
Always: results are those of the module itself, within the tolerance; whatever can't be done another
way is done by the module itself, and that is said once; what is not served raises with its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_ort.inference import InferenceRunner
from torch_ort.notices import Notices
from torch_ort.options import DebugOptions, LogLevel, Options
from torch_ort.training import TrainingRunner

__all__ = ["DebugOptions", "LogLevel", "ORTModule"]

_SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
_RUNNERS = ("_inference", "_training_runner")


class ORTModule(torch.nn.Module):
    """`module`, run the fastest proven way. Its parameters, buffers and keys are the module's own.

    In eval mode without gradients ONNX Runtime answers; otherwise torch.compile may train it. Each
    is compared with the module itself first, in results and in time.
    """

    def __init__(self, module: torch.nn.Module, debug_options: DebugOptions | None = None) -> None:
        super().__init__()
        # Past __setattr__, which would make it a child and change every name.
        self.__dict__["_original"] = module
        self.__dict__["_debug_options"] = debug_options
        self.__dict__["training"] = module.training
        for name in _SHARED:
            self.__dict__[name] = module.__dict__[name]
        self._make_runners()

    def _make_runners(self) -> None:
        options = Options.read(self.__dict__["_debug_options"])
        notices = Notices(type(self.module).__name__)
        self.__dict__["_inference"] = InferenceRunner(self.module, options, notices)
        self.__dict__["_training_runner"] = TrainingRunner(self.module, options, notices)

    @property
    def module(self) -> torch.nn.Module:
        """What was wrapped."""
        original: torch.nn.Module = self.__dict__["_original"]
        return original

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if _is_traced():
            return self.module(*inputs, **keywords)
        runner = "_training_runner" if torch.is_grad_enabled() else "_inference"
        return self.__dict__[runner](inputs, keywords)

    def train(self, mode: bool = True) -> ORTModule:
        self.module.train(mode)
        self.training = mode
        return self

    def state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        return self.module.state_dict(*arguments, **keywords)

    def load_state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        return self.module.load_state_dict(*arguments, **keywords)

    def _apply(self, change: Callable[..., Any], *more: Any, **keywords: Any) -> ORTModule:
        self.module._apply(change, *more, **keywords)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled and copied: sessions and compiled code are made again."""
        return {name: value for name, value in self.__dict__.items() if name not in _RUNNERS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._make_runners()

    def __getattr__(self, name: str) -> Any:
        if "_original" not in self.__dict__:  # While it is unpickled.
            raise AttributeError(name)
        return getattr(self.__dict__["_original"], name)


def _is_traced() -> bool:
    """Whether the script compiles or traces around it."""
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    return bool(is_compiling() or torch.jit.is_tracing())


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"torchyard's torch_ort has no `{name}`: it serves {', '.join(__all__)}. ONNX Runtime's "
        "training does not import beside this torch; `torch.compile` is today's way"
    )
