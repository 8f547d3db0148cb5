"""Read a checkpoint into a state, on any number of ranks.

Owns: comparing state and checkpoint, and reading.
Leaves: which checkpoint to the checkpointer; pieces of tensors to torch.distributed.checkpoint.
Always: nothing of the state is changed when keys are missing or have another shape.

Checkpoints hold pickled objects, as those of torch do: load only those that you trust.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    _EmptyStateDictLoadPlanner,
)
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from torchyard.train.checkpoint import states
from torchyard.train.checkpoint.errors import CheckpointMismatch
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.checkpoint.whole_reads import read_whole


def load_all(info: CheckpointInfo) -> dict[str, Any]:
    """The whole state as it was saved, every tensor whole and on the CPU."""
    tree: dict[str, Any] = {}
    reader = FileSystemReader(info.path)
    _read(tree, reader, reader.read_metadata(), _EmptyStateDictLoadPlanner())
    return tree


def load_into(
    state: Mapping[str, Any], info: CheckpointInfo, strict: bool, optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Load what the state names, into its own tensors and objects; returns all as dicts.

    The checkpoint may lack the `optional` keys of the state; they are left out.

    Raises:
        CheckpointMismatch: keys are missing, or tensors have another shape.
    """
    tree = states.to_tree(state)
    reader = FileSystemReader(info.path)
    metadata = reader.read_metadata()
    problems = compare(tree, metadata)
    mismatches = [
        text for path, text in problems.items() if path not in {(key,) for key in optional}
    ]
    if mismatches and strict:
        raise CheckpointMismatch(info.step, mismatches)
    values: dict[str, Any] = _without(tree, (), problems)
    _read(values, reader, metadata, DefaultLoadPlanner(allow_partial_load=not strict))
    states.give_back(state, values, [key for key in values if key in tree])
    return values


def compare(tree: Mapping[str, Any], metadata: Metadata) -> dict[tuple[Any, ...], str]:
    """What of the state can't be loaded, by its path in the nested dicts."""
    flat, paths = flatten_state_dict(dict(tree))
    problems: dict[tuple[Any, ...], str] = {}
    for name, value in flat.items():
        saved = metadata.state_dict_metadata.get(name)
        if saved is None:
            problems[tuple(paths[name])] = f"`{name}` is not in the checkpoint"
        elif isinstance(value, torch.Tensor) and isinstance(saved, TensorStorageMetadata):
            if tuple(value.size()) != tuple(saved.size):
                problems[tuple(paths[name])] = (
                    f"`{name}` has shape {list(value.size())} here and {list(saved.size)} "
                    "in the checkpoint"
                )
        elif isinstance(value, torch.Tensor):
            problems[tuple(paths[name])] = f"`{name}` is a tensor here and none in the checkpoint"
        elif isinstance(saved, TensorStorageMetadata):
            problems[tuple(paths[name])] = f"`{name}` is a tensor in the checkpoint and none here"
    return problems


def _read(tree: dict[str, Any], reader: FileSystemReader, metadata: Metadata, planner: Any) -> None:
    """Each rank reads what it needs; no rank waits for another."""
    planner.set_up_planner(tree, metadata, True)
    reader.set_up_storage_reader(metadata, True)
    plan = planner.finish_plan(reader.prepare_local_plan(planner.create_local_plan()))
    items = read_whole(Path(reader.path), metadata.storage_data, plan.items, planner)
    reader.read_data(replace(plan, items=items), planner).wait()


def _without(value: Any, path: tuple[Any, ...], problems: Mapping[tuple[Any, ...], str]) -> Any:
    """A nested dict without what can't be loaded."""
    if not isinstance(value, Mapping) or not problems:
        return value
    return {
        key: _without(child, (*path, key), problems)
        for key, child in value.items()
        if (*path, key) not in problems
    }
