"""Wrapping the parts of a module, as torch.distributed.fsdp.wrap does.

Owns: wrapping by size.
Leaves: the context and single parts to torch.
Always: outside of `enable_wrap` nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.fsdp import wrap as torchs
from torch.distributed.fsdp.wrap import enable_wrap, wrap

from fairscale.refusals import refuse

__all__ = ["auto_wrap", "default_auto_wrap_policy", "enable_wrap", "wrap"]

# Their parts make sense together alone.
_LEAVES = (torch.nn.MultiheadAttention,)
_EXCLUDED = (torch.nn.ModuleList, torch.nn.ModuleDict)


def default_auto_wrap_policy(
    module: torch.nn.Module,
    recurse: bool,
    unwrapped_params: int,
    module_is_root: bool = False,
    min_num_params: int = int(1e8),
) -> bool:
    """Whether to look into a module, or to wrap it: from `min_num_params` on."""
    if unwrapped_params < min_num_params:
        return False
    return not isinstance(module, _LEAVES if recurse else _EXCLUDED)


def auto_wrap(
    module: torch.nn.Module, auto_wrap_policy: Callable[..., bool] | None = None, **kwargs: Any
) -> torch.nn.Module:
    """Wrap the module's parts that the policy picks, then itself; within `enable_wrap`."""
    if not torchs._ConfigAutoWrap.in_autowrap_context:
        return module
    wrapped, _ = _wrap(module, auto_wrap_policy or default_auto_wrap_policy, True, kwargs)
    return wrapped


def _wrap(
    module: torch.nn.Module, policy: Callable[..., bool], is_root: bool, options: dict[str, Any]
) -> tuple[torch.nn.Module, int]:
    """The module or its wrapper, and how many of its parameters are wrapped."""
    total = sum(weight.numel() for weight in module.parameters())
    done = 0
    if policy(module=module, recurse=True, unwrapped_params=total, module_is_root=is_root):
        for name, child in list(module.named_children()):
            wrapper, wrapped = _wrap(child, policy, False, options)
            setattr(module, name, wrapper)
            done += wrapped
        rest = total - done
        if policy(module=module, recurse=False, unwrapped_params=rest, module_is_root=is_root):
            return wrap(module, **options), total
    return module, done


__getattr__ = refuse("fairscale.nn.wrap", __all__)
