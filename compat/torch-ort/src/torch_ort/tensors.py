"""Comparing results, and facts about modules that both runners ask for.

Owns: the tolerance, what a module must not have to be run another way.
Leaves: running to inference and training.
Always: the same structure, shapes and types are part of being equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from torch.utils import _pytree as pytree

# Of float32 values, as a share of the largest; sums in another order differ by less.
TOLERANCE = 1e-3
# Of half and bfloat16 values, whose last digit alone is worth as much, and of all that was computed
# from such values.
HALF_TOLERANCE = 2e-2
_ROUNDS = 5


def difference(results: Any, expected: Any) -> str:
    """How they differ by more than the tolerance, or nothing."""
    leaves, structure = pytree.tree_flatten(results)
    right, right_structure = pytree.tree_flatten(expected)
    is_mixed = is_autocast()
    if structure != right_structure:
        return "results have another structure"
    for leaf, other in zip(leaves, right):
        if not isinstance(other, torch.Tensor):
            if leaf is not other and leaf != other:
                return f"{leaf!r} instead of {other!r}"
            continue
        if leaf.shape != other.shape or leaf.dtype != other.dtype:
            return f"{leaf.dtype} {tuple(leaf.shape)} instead of {other.dtype} {tuple(other.shape)}"
        apart = _apart(leaf, other)
        is_whole = other.dtype in (torch.float32, torch.float64) and not is_mixed
        tolerance = TOLERANCE if is_whole else HALF_TOLERANCE
        if not apart <= tolerance:
            return f"results are {apart:.1e} of the largest value apart, {tolerance:.0e} is allowed"
    return ""


def is_autocast() -> bool:
    """Whether operations compute in half precision here, whatever the type of their results."""
    try:
        return any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
    except TypeError:  # before torch 2.4
        return bool(torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())


def _apart(values: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference as a share of the largest value; values that aren't finite match."""
    if not expected.is_floating_point():
        return 0.0 if torch.equal(values, expected) else float("inf")
    if not expected.numel():
        return 0.0
    values, expected = values.detach().float(), expected.detach().float()
    finite = torch.isfinite(expected)
    if not torch.equal(finite, torch.isfinite(values)):
        return float("inf")
    apart = (values - expected)[finite].abs()
    if not apart.numel():
        return 0.0
    return float(apart.max() / expected[finite].abs().max().clamp(min=1e-6))


def obstacle(module: torch.nn.Module) -> str:
    """What makes each forward call of the module count, or nothing."""
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            return f"it has hooks ({type(part).__name__})"
        if isinstance(part, torch.nn.SyncBatchNorm):
            return "SyncBatchNorm talks to other ranks in each call"
    for tensor in states(module):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return f"its parameters are of the class {type(tensor).__name__}"
    return ""


def states(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Parameters and buffers."""
    yield from module.parameters()
    yield from module.buffers()


def alternate(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[float, float]:
    """Seconds that each takes at best, called in turn."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        for number, call in enumerate((first, second)):
            started = perf_counter()
            call()
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            seconds[number].append(perf_counter() - started)
    return min(seconds[0]), min(seconds[1])
