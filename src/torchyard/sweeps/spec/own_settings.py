"""What `torchyard:` of a sweep file says of the sweep itself.

Owns: the properties `torchyard.<name>` that a sweep reads, and reading them.
Leaves: those of its trials to jobs/spec/own_properties.py, by whom unknown ones are refused.
Always: a property means the same in the mapping `torchyard:`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torchyard.base.documents.checks import At, By, Text
from torchyard.base.documents.models import Document, declared, keys
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import own_properties
from torchyard.sweeps.spec import early_termination, objectives
from torchyard.sweeps.spec.early_termination import Policy
from torchyard.sweeps.spec.objectives import Objective
from torchyard.sweeps.spec.sampling import SAMPLERS, read_seed
from torchyard.sweeps.spec.search_space import SearchSpace, Value, contains

PREFIX = own_properties.PREFIX
_POLICY = f"{PREFIX}early_termination"
_MOST_TEXT = 1 << 20
_MOST_POINTS = 1000
_MOST_METRICS = 20


def _objectives(value: str, at: At) -> tuple[Objective, ...]:
    listed = enumerate(_list(value, at))
    return tuple(objectives.read(body, (*at, position)) for position, body in listed)


def _constraints(value: str, at: At) -> tuple[str, ...]:
    metrics = _list(value, at)
    for metric in metrics:
        if not isinstance(metric, str) or not 0 < len(metric) <= 255:
            raise _wrong(at, "a list of metrics", "`constraints: [memory]`")
    return metrics


def _early_termination(value: str | Mapping[str, Any], at: At) -> Policy | None:
    policy = _json(value) if isinstance(value, str) else value
    if not isinstance(policy, Mapping):
        raise _wrong(at, "a mapping", "`early_termination: {type: asha, max_intervals: 27}`")
    return early_termination.read(policy, at)


def _max_failed_trials(value: str, at: At) -> int:
    return own_properties.count({str(at[-1]): value}, str(at[-1]), 0, 0, 10**6)


class OwnSettings(Document):
    sampler: str | None = declared(
        None,
        "`tpe`, `gp`, `cmaes`, `qmc`, `nsgaii`, `nsgaiii`, `brute_force`, or `random`, "
        "`sobol`, `grid`: goes before `sampling_algorithm`, which may then be left out",
        SAMPLERS,
        alias="torchyard.sampler",
    )
    seed: int | None = declared(
        None,
        "0 to 4294967295: makes the sweep repeatable, whichever the algorithm",
        By(read_seed),
        alias="torchyard.seed",
    )
    objectives: tuple[Objective, ...] = declared(
        (),
        "several objectives, as a list of `{primary_metric: …, goal: …}`; policies go by the first",
        By(_objectives),
        alias="torchyard.objectives",
    )
    constraints: tuple[str, ...] = declared(
        (),
        "metrics that must not be above 0; the samplers of Optuna avoid parameters that break one",
        By(_constraints),
        alias="torchyard.constraints",
    )
    early_termination: Policy | None = declared(
        None,
        "`{type: asha, max_intervals: 27, min_intervals: 1, reduction_factor: 3}` or `type: "
        "hyperband`, with the same keys; Azure's policies too",
        By(_early_termination),
        alias="torchyard.early_termination",
    )
    warm_start: str = declared(
        "",
        "parameters of the first trials, as a list of mappings, or the name of an earlier "
        "sweep: a sampler of Optuna's learns from its trials, the others run its best "
        "parameters first, up to a quarter of the trials",
        Text(),
        alias="torchyard.warm_start",
    )
    max_failed_trials: int | None = declared(
        None,
        "how many trials may fail before the sweep does; default: all of them",
        By(_max_failed_trials),
        alias="torchyard.max_failed_trials",
    )


def schema() -> dict[str, Any]:
    """The mapping `torchyard:` of a sweep, as JSON Schema has it; other keys are its trials'."""
    own = OwnSettings.as_json_schema()["properties"]
    return {
        "type": "object",
        "properties": {key.removeprefix(PREFIX): value for key, value in own.items()},
    }


def is_setting(key: str) -> bool:
    return key in keys(OwnSettings) or key.startswith(f"{_POLICY}.")


def read(properties: Mapping[str, str]) -> OwnSettings:
    """
    Args:
        properties: with the mapping `torchyard:` among them.

    Raises:
        InvalidSpec: a value is not understood.
    """
    body: dict[str, Any] = {key: properties[key] for key in keys(OwnSettings) if key in properties}
    policy = {
        key.removeprefix(f"{_POLICY}."): _plain_value(value)
        for key, value in properties.items()
        if key.startswith(f"{_POLICY}.")
    }
    return OwnSettings.read({**body, _POLICY: policy} if policy else body, ("properties",))


def warm_start(written: str, space: SearchSpace) -> tuple[Mapping[str, Value], ...] | str:
    """The points of a list, or the name of a sweep.

    Raises:
        InvalidSpec: a point is outside the search space.
    """
    key = "torchyard.warm_start"
    if not written:
        return ()
    if not written.lstrip().startswith("["):
        return written.strip()
    points = _list(written, ("properties", key), _MOST_POINTS)
    for index, point in enumerate(points):
        if not isinstance(point, Mapping) or not contains(space, point):
            raise InvalidSpec(
                f"point {index + 1} of `warm_start` is not in the search space",
                "each point needs every hyperparameter, with a value that it may have",
                at=("properties", key),
            )
    return points


def _list(written: str, at: At, limit: int = _MOST_METRICS) -> tuple[Any, ...]:
    value = _json(written)
    if value is None and not written.lstrip().startswith("["):
        value = [word.strip() for word in written.split(",")]
    if not isinstance(value, list) or len(value) > limit:
        key = str(at[-1]).removeprefix(PREFIX)
        raise _wrong(at, f"a list of {limit} entries at most", f"`{key}: [ … ]`")
    return tuple(value)


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


def _wrong(at: At, expected: str, example: str) -> InvalidSpec:
    return InvalidSpec(f"`{at[-1]}` is not {expected}", f"for example {example}", at=at)
