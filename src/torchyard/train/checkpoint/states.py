"""What a training's state is made of, as torch.distributed.checkpoint plans and reads it.

Owns: taking states from modules, optimizers and other objects, and giving them back.
Leaves: copying to staging, files to shares and loading.
Always: names are those of the module alone, without wrappers, so other numbers of ranks can load.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan

from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.shares import ItemData


def to_tree(state: Mapping[str, Any]) -> dict[str, Any]:
    """Replace modules, optimizers and what else has a `state_dict()` by their states."""
    tree: dict[str, Any] = {}
    modules = [value for value in state.values() if isinstance(value, torch.nn.Module)]
    for key, value in state.items():
        if isinstance(value, torch.nn.Module):
            tree[key] = states.get_model_state_dict(value)
        elif isinstance(value, torch.optim.Optimizer):
            module = _module_of(value, modules)
            tree[key] = (
                value.state_dict()
                if module is None
                else states.get_optimizer_state_dict(module, value)
            )
        elif isinstance(value, Mapping):
            tree[key] = dict(value)
        elif callable(getattr(value, "state_dict", None)):
            tree[key] = value.state_dict()
        else:
            tree[key] = value
    return tree


def give_back(state: Mapping[str, Any], tree: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Put loaded states into the objects that they came from; tensors are there already."""
    modules = [value for value in state.values() if isinstance(value, torch.nn.Module)]
    for key in keys:
        value = state[key]
        if isinstance(value, torch.nn.Module):
            states.set_model_state_dict(
                value, tree[key], options=states.StateDictOptions(strict=False)
            )
        elif isinstance(value, torch.optim.Optimizer):
            module = _module_of(value, modules)
            if module is None:
                value.load_state_dict(tree[key])
            else:
                states.set_optimizer_state_dict(module, value, tree[key])
        elif not isinstance(value, Mapping) and callable(getattr(value, "load_state_dict", None)):
            value.load_state_dict(tree[key])
        elif isinstance(value, dict):
            value.clear()
            value.update(tree[key])


class PlannedState:
    """A rank's state with its plan; positions count the items of the plan."""

    def __init__(self, state: Mapping[str, Any], is_first: bool) -> None:
        if not isinstance(state, Mapping) or not all(isinstance(key, str) for key in state):
            raise CheckpointError(
                "the state must be a dict whose keys are strings",
                'such as {"model": model, "optimizer": optimizer}',
            )
        self._planner = DefaultSavePlanner()
        self._planner.set_up_planner(to_tree(state), is_coordinator=is_first)
        self.plan: SavePlan = self._planner.create_local_plan()

    def read(self, position: int) -> ItemData:
        """The data of an item: a rank's own piece of a tensor, or an object as torch.save's.

        Raises:
            CheckpointError: the object can't be pickled.
        """
        item = self.plan.items[position]
        try:
            data = self._planner.resolve_data(item)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise CheckpointError(
                f"`{item.index.fqn}` can't be saved: {error}",
                "leave it out of the state, or give it a `state_dict()` of tensors and values",
            ) from error
        if isinstance(data, io.BytesIO):
            return data.getvalue()
        tensor: torch.Tensor = data.detach()
        return tensor

    def items(self, positions: Sequence[int] | None) -> Iterator[tuple[int, ItemData]]:
        for position in range(len(self.plan.items)) if positions is None else positions:
            yield position, self.read(position)

    def non_finite(self) -> list[str]:
        """The names of tensors with NaN or infinite values."""
        names: dict[str, None] = {}
        for position, item in enumerate(self.plan.items):
            data = self.read(position)
            if isinstance(data, torch.Tensor) and (data.is_floating_point() or data.is_complex()):
                if not bool(torch.isfinite(data).all()):
                    names[item.index.fqn] = None
        return list(names)


def _module_of(
    optimizer: torch.optim.Optimizer, modules: Sequence[torch.nn.Module]
) -> torch.nn.Module | None:
    """The module whose parameters it optimizes; None unless it is one of those."""
    parameters = {id(value) for group in optimizer.param_groups for value in group["params"]}
    for module in modules:
        if parameters <= {id(parameter) for parameter in module.parameters()}:
            return module
    return None
