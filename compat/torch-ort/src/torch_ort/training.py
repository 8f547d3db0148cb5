"""Training a module through torch.compile, where that is measured to be no slower.

Owns: the trial on a copy of the module, and what is done with its result.
Leaves: compiling to torch.
Always: the module's own weights, gradients, buffers and random numbers are untouched by the trial;
what can't be compiled, differs or is slower is trained by the module itself.

The trial costs seconds to minutes, most of it compiling. It begins when the module has trained for
as long as that usually takes: short runs never pay for it, long ones lose little.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_ort import tensors
from torch_ort.notices import Notices, reason
from torch_ort.options import Options

# Before them a step's time is that of starting.
_FIRST_STEPS = 3


class TrainingRunner:
    """Runs one module with gradients."""

    def __init__(self, module: torch.nn.Module, options: Options, notices: Notices) -> None:
        self._module = module
        self._options = options
        self._notices = notices
        self._is_decided = options.training == "eager"
        self._compiled: Any = None
        self._steps = 0
        self._began_s = 0.0

    def __call__(self, inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        if not self._module.training:
            return self._module(*inputs, **keywords)
        if not self._is_decided and self._is_due():
            self._decide(inputs, keywords)
        if self._compiled is None:
            return self._module(*inputs, **keywords)
        try:
            return self._compiled(*inputs, **keywords)
        except Exception as error:
            if not _is_of_the_compiler(error):
                raise
            self._compiled = None
            self._notices.say(f"trains without torch.compile from now on: {reason(error)}")
            return self._module(*inputs, **keywords)

    def _is_due(self) -> bool:
        if self._options.training == "compile":
            return True
        self._steps += 1
        if self._steps <= _FIRST_STEPS:
            self._began_s = perf_counter()
            return False
        return perf_counter() - self._began_s >= self._options.trial_after_s

    def _decide(self, inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        self._is_decided = True
        why = _no_compiler() or tensors.obstacle(self._module)
        gain = ""
        if not why and self._options.training == "auto":
            try:
                why, gain = _try_out(self._module, inputs, keywords)
            except Exception as error:  # A copy, the compiler and memory fail in any way.
                why = reason(error)
        if why:
            self._notices.say(f"trains without torch.compile: {why}")
            return
        self._compiled = _compile(self._module)
        self._notices.say(f"trains through torch.compile{gain}")


def _compile(module: torch.nn.Module) -> Any:
    """Random numbers are eager's own, so that dropout drops the same."""
    return torch.compile(module, options={"fallback_random": True})


def _try_out(
    module: torch.nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[str, str]:
    """Why a compiled copy is worse, or how much better it is."""
    plain = copy.deepcopy(module)
    compiled = _compile(copy.deepcopy(module))
    devices = {leaf.device for leaf in tensors.states(module) if leaf.device.type == "cuda"}
    with torch.random.fork_rng([device.index or 0 for device in devices]):
        expected = _step(plain, inputs, keywords)
        differs = tensors.difference(_step(compiled, inputs, keywords), expected)
        if differs:
            return differs, ""
        theirs, module_s = tensors.alternate(
            lambda: _step(compiled, inputs, keywords), lambda: _step(plain, inputs, keywords)
        )
    if theirs > module_s:
        return f"it takes {theirs / module_s:.2f} times as long", ""
    return "", (
        f": forward and backward take {theirs / module_s:.2f} of the time, with the same results "
        f"(within {tensors.HALF_TOLERANCE if tensors.is_autocast() else tensors.TOLERANCE:g})"
    )


def _step(module: Any, inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Results and gradients of the weights, for the same random numbers each time."""
    torch.manual_seed(0)
    inputs, keywords = pytree.tree_map(_detached, (inputs, dict(keywords)))
    results = module(*inputs, **keywords)
    losses = [
        leaf.float().pow(2).mean()
        for leaf in pytree.tree_leaves(results)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(sum(losses), weights, allow_unused=True) if losses else ()
    return pytree.tree_map(_detached, results), list(gradients)


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _no_compiler() -> str:
    if not hasattr(torch, "compile"):
        return "this torch has none"
    names = (os.environ.get("CXX", "g++"), "g++", "clang++")
    if not any(shutil.which(name) for name in names):
        return "it needs a C++ compiler, and `g++` is not installed"
    return ""


def _is_of_the_compiler(error: Exception) -> bool:
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)
