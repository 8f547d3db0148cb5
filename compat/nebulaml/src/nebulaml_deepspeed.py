"""What every Python of an environment with nebulaml runs at its start: waits for DeepSpeed.

Owns: noticing imports of DeepSpeed, and giving it back what scripts written for Nebula ask it for:
the block `"nebula"`, which 0.19 removed, and the argument `--deepspeed_mpi`, which 0.13 removed.
Leaves: saving and loading to torch_nebula.deepspeed_engine.
Always: a Python that never imports DeepSpeed only compares a few names; a DeepSpeed that has these
is left as it is.
"""

from __future__ import annotations

import argparse
import functools
import sys

MYPY = False
if MYPY:
    from collections.abc import Sequence
    from typing import Any

_BLOCK = "nebula"
_SETTINGS = "torchyard_nebula"


def install() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Comes first in `sys.meta_path`; answers for the names of `_CHANGES` alone."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name not in _CHANGES:
            return None
        for finder in sys.meta_path:
            find = None if finder is _Finder else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None and spec.loader is not None:
                _change_after(spec.loader, name)
                return spec
        return None


def _change_after(loader: Any, name: str) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        _CHANGES[name](module)

    loader.exec_module = exec_module


def _accept_mpi_argument(deepspeed: Any) -> None:
    """It did nothing up to 0.12 either: DeepSpeed looks for MPI by itself."""
    add = getattr(deepspeed, "_add_core_arguments", None)
    if add is None:
        return

    @functools.wraps(add)
    def add_core_arguments(parser: Any) -> Any:
        result = add(parser)
        try:
            parser.add_argument(
                "--deepspeed_mpi", default=False, action="store_true", help=argparse.SUPPRESS
            )
        except argparse.ArgumentError:
            pass
        return result

    deepspeed._add_core_arguments = add_core_arguments


def _accept_block(config: Any) -> None:
    """`deepspeed.runtime.config`: the block is kept for the engine below."""
    if hasattr(config, "DeepSpeedNebulaConfig"):
        return
    getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {}).pop(_BLOCK, None)
    kind = config.DeepSpeedConfig
    initialize = kind._initialize_params

    @functools.wraps(initialize)
    def initialize_params(self: Any, param_dict: Any) -> None:
        initialize(self, param_dict)
        setattr(self, _SETTINGS, param_dict.get(_BLOCK))

    kind._initialize_params = initialize_params


def _choose_engine(utils: Any) -> None:
    """`deepspeed.runtime.checkpoint_engine.utils`: an enabled block takes Nebula's engine."""
    create = utils.create_checkpoint_engine

    @functools.wraps(create)
    def create_checkpoint_engine(config_params: Any, *arguments: Any, **keywords: Any) -> Any:
        block = getattr(config_params, _SETTINGS, None)
        if block is None:
            return create(config_params, *arguments, **keywords)
        from torch_nebula import deepspeed_engine

        settings = deepspeed_engine.parse(block)
        if not settings.enabled or config_params.checkpoint_config["writer"] is not None:
            return create(config_params, *arguments, **keywords)
        return deepspeed_engine.NebulaCheckpointEngine(settings)

    utils.create_checkpoint_engine = create_checkpoint_engine


_CHANGES = {
    "deepspeed": _accept_mpi_argument,
    "deepspeed.runtime.config": _accept_block,
    "deepspeed.runtime.checkpoint_engine.utils": _choose_engine,
}
