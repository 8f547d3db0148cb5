"""Wrappers of modules: data parallel, sharded, computed again in the backward pass.

Owns: fairscale's names in one place.
Leaves: each to the module of its name.
Always: what is not served raises with its name.
"""

from __future__ import annotations

from fairscale.nn.checkpoint import checkpoint_wrapper
from fairscale.nn.data_parallel import FullyShardedDataParallel, ShardedDataParallel
from fairscale.nn.wrap import auto_wrap, default_auto_wrap_policy, enable_wrap, wrap
from fairscale.refusals import refuse

__all__ = [
    "FullyShardedDataParallel",
    "ShardedDataParallel",
    "auto_wrap",
    "checkpoint_wrapper",
    "default_auto_wrap_policy",
    "enable_wrap",
    "wrap",
]

__getattr__ = refuse("fairscale.nn", __all__)
