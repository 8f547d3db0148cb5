"""What `torchyard:` of a sweep file says of the sweep itself.

Owns: the properties `torchyard.<name>` that a sweep reads, and reading them.
Leaves: those of its trials to jobs/spec/own_properties.py, by whom unknown ones are refused.
Always: a property means the same in the mapping `torchyard:`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.jobs.spec import own_properties
from torchyard.sweeps.spec.search_space import SearchSpace, Value, contains

PREFIX = own_properties.PREFIX
_POLICY = f"{PREFIX}early_termination."
_MOST_TEXT = 1 << 20
_MOST_POINTS = 1000
_MOST_METRICS = 20

# What each says, for the docs.
TABLE: dict[str, str] = {
    "torchyard.sampler": "`tpe`, `gp`, `cmaes`, `qmc`, `nsgaii`, `nsgaiii`, `brute_force`, or "
    "`random`, `sobol`, `grid`: goes before `sampling_algorithm`, which may then be left out",
    "torchyard.seed": "0 to 4294967295: makes the sweep repeatable, whichever the algorithm",
    "torchyard.objectives": "several objectives, as a list of `{primary_metric: …, goal: …}`; "
    "policies go by the first",
    "torchyard.constraints": "metrics that must not be above 0; the samplers of Optuna avoid "
    "parameters that break one",
    "torchyard.early_termination": "`{type: asha, max_intervals: 27, min_intervals: 1, "
    "reduction_factor: 3}` or `type: hyperband`, with the same keys; Azure's policies too",
    "torchyard.warm_start": "parameters of the first trials, as a list of mappings, or the name of "
    "an earlier sweep: a sampler of Optuna's learns from its trials, the others run its best "
    "parameters first, up to a quarter of the trials",
    "torchyard.max_failed_trials": "how many trials may fail before the sweep does; default: all "
    "of them",
}


@dataclass(frozen=True)
class OwnSettings:
    """As written; `objectives` are mappings or what else stands in the list."""

    sampler: str | None
    seed: str | None
    objectives: tuple[Any, ...]
    constraints: tuple[str, ...]
    early_termination: Mapping[str, Any] | None
    warm_start: str | None
    max_failed_trials: int | None


def is_setting(key: str) -> bool:
    return key in TABLE or key.startswith(_POLICY)


def read(properties: Mapping[str, str]) -> OwnSettings:
    """
    Args:
        properties: with the mapping `torchyard:` among them.

    Raises:
        InvalidSpec: a value is not understood.
    """
    policy = {
        key[len(_POLICY) :]: _plain_value(value)
        for key, value in properties.items()
        if key.startswith(_POLICY)
    }
    failures = None
    if "torchyard.max_failed_trials" in properties:
        failures = own_properties.count(properties, "torchyard.max_failed_trials", 0, 0, 10**6)
    constraints = _list(properties, "torchyard.constraints")
    for metric in constraints:
        if not isinstance(metric, str) or not 0 < len(metric) <= 255:
            raise _wrong("torchyard.constraints", "a list of metrics", "`constraints: [memory]`")
    return OwnSettings(
        properties.get("torchyard.sampler"),
        properties.get("torchyard.seed"),
        _list(properties, "torchyard.objectives"),
        constraints,
        policy or _json_mapping(properties, "torchyard.early_termination"),
        properties.get("torchyard.warm_start"),
        failures,
    )


def warm_start(written: str | None, space: SearchSpace) -> tuple[Mapping[str, Value], ...] | str:
    """The points of a list, or the name of a sweep.

    Raises:
        InvalidSpec: a point is outside the search space.
    """
    key = "torchyard.warm_start"
    if not written:
        return ()
    if not written.lstrip().startswith("["):
        return written.strip()
    points = _list({key: written}, key, _MOST_POINTS)
    for index, point in enumerate(points):
        if not isinstance(point, Mapping) or not contains(space, point):
            raise InvalidSpec(
                f"point {index + 1} of `warm_start` is not in the search space",
                "each point needs every hyperparameter, with a value that it may have",
                at=("properties", key),
            )
    return points


def _list(properties: Mapping[str, str], key: str, limit: int = _MOST_METRICS) -> tuple[Any, ...]:
    written = properties.get(key)
    if written is None:
        return ()
    value = _json(written)
    if value is None and not written.lstrip().startswith("["):
        value = [word.strip() for word in written.split(",")]
    if not isinstance(value, list) or len(value) > limit:
        raise _wrong(key, f"a list of {limit} entries at most", f"`{key[len(PREFIX) :]}: [ … ]`")
    return tuple(value)


def _json_mapping(properties: Mapping[str, str], key: str) -> Mapping[str, Any] | None:
    written = properties.get(key)
    if written is None:
        return None
    value = _json(written)
    if not isinstance(value, dict):
        raise _wrong(key, "a mapping", "`early_termination: {type: asha, max_intervals: 27}`")
    return value


def _plain_value(text: str) -> Any:
    value = _json(text)
    return text if value is None or isinstance(value, dict | list) else value


def _json(text: str) -> Any:
    if len(text) > _MOST_TEXT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _wrong(key: str, expected: str, example: str) -> InvalidSpec:
    return InvalidSpec(
        f"`{key}` is not {expected}", f"for example {example}", at=("properties", key)
    )


def metric_name(value: Any, at: tuple[str | int, ...]) -> str:
    """
    Raises:
        InvalidSpec: it can't be the name of a metric.
    """
    if not isinstance(value, str) or not 0 < len(value.strip()) <= 255:
        raise InvalidSpec(
            f"`primary_metric` must be the name of a metric, not {described(value)}",
            "name one that the script logs, for example `primary_metric: val_loss`",
            at=(*at, "primary_metric"),
        )
    return value
