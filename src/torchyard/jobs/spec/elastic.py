"""Jobs whose number of nodes changes while they run.

Owns: reading `torchyard.min_nodes`, `torchyard.max_nodes` and `torchyard.grow_after`.
Leaves: how many nodes an attempt gets to scheduling/claims.py, when it gets more to
scheduling/growing.py, what follows a lost node to attempts/losses.py.
Always: a job without these properties has as many nodes as it asks for, or waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import texts
from torchyard.jobs.spec import own_properties

MIN_NODES = "torchyard.min_nodes"
MAX_NODES = "torchyard.max_nodes"
GROW_AFTER = "torchyard.grow_after"
_KEYS = (MIN_NODES, MAX_NODES, GROW_AFTER)
_MOST_NODES = 1000
_DEFAULT_GROW_AFTER_S = 300.0
_LONGEST_S = 7 * 86_400.0


@dataclass(frozen=True)
class Elastic:
    """An attempt runs for `grow_after_s` before it is stopped to go on with more or fewer nodes."""

    min_nodes: int
    max_nodes: int
    grow_after_s: float = _DEFAULT_GROW_AFTER_S


def written(job: Mapping[str, Any]) -> dict[str, str]:
    """Those of a job file's properties that are read here, as texts.

    Raises:
        InvalidSpec: a value is a list or a mapping.
    """
    properties = job.get("properties")
    if not isinstance(properties, Mapping):
        return {}  # what is wrong with it is said where all of them are read
    some = {key: properties[key] for key in _KEYS if key in properties}
    return texts({"properties": some}, "properties")


def is_elastic(properties: Mapping[str, str]) -> bool:
    """Without reading the values."""
    return MAX_NODES in properties


def read(properties: Mapping[str, str]) -> Elastic | None:
    """None for a job whose number of nodes stays.

    Raises:
        InvalidSpec: a value is not understood, or says nothing without another.
    """
    if MAX_NODES not in properties:
        for key in (MIN_NODES, GROW_AFTER):
            if key in properties:
                raise InvalidSpec(
                    f"`{key}` is for jobs whose number of nodes may change, and there is no "
                    f"`{MAX_NODES}`",
                    f"add `{MAX_NODES}: 4`, or remove `{key}`",
                    at=("properties", key),
                )
        return None
    maximum = own_properties.count(properties, MAX_NODES, 1, 1, _MOST_NODES)
    least = own_properties.count(properties, MIN_NODES, 1, 1, _MOST_NODES)
    if least > maximum:
        raise InvalidSpec(
            f"`{MIN_NODES}` is {least}, and `{MAX_NODES}` is {maximum}",
            f"write a `{MIN_NODES}` of {maximum} at most",
            at=("properties", MIN_NODES),
        )
    hint = "write a time such as `90s`, `10m` or `1h`, up to 7 days"
    grow_after_s = own_properties.bounded_duration_s(
        properties, GROW_AFTER, _DEFAULT_GROW_AFTER_S, _LONGEST_S, hint
    )
    return Elastic(least, maximum, grow_after_s)


def refuse_size(elastic: Elastic, instance_count: int) -> None:
    """
    Raises:
        InvalidSpec: the number of nodes to start with is not one that the job may have.
    """
    if not elastic.min_nodes <= instance_count <= elastic.max_nodes:
        raise InvalidSpec(
            f"`instance_count` is {instance_count}, and the job has {elastic.min_nodes} to "
            f"{elastic.max_nodes} nodes",
            f"`instance_count` is how many it starts with: write {elastic.min_nodes} to "
            f"{elastic.max_nodes}, or remove it",
            at=("resources", "instance_count"),
        )


def refuse_fixed_tasks(distribution: str) -> None:
    """
    Raises:
        InvalidSpec: the job says itself how many processes there are over all nodes.
    """
    if distribution == "tensorflow":
        raise InvalidSpec(
            "a job of `type: tensorflow` has a fixed number of tasks, so its number of nodes "
            "can't change",
            f"remove `{MAX_NODES}`, or use `distribution: {{type: pytorch}}`",
            at=("properties", MAX_NODES),
        )
