"""Make the file of a sweep out of a command job's.

Owns: ranges as people write them, `loguniform:1e-5,1e-1`; which keys of a job become its trial's.
Leaves: what is valid to the server.
Always: a range says the values themselves; Azure's bounds of logarithmic spaces are the exponents
of e that give them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torchyard.base.errors import InvalidInput, InvalidSpec, nearest

# Of a job's file, what becomes the trial's; the rest is the sweep's.
_OF_TRIAL = (
    *("command", "code", "environment", "environment_variables", "distribution", "resources"),
    "services",
)
_GOALS = ("minimize", "maximize")
# What the number behind a policy's name sets.
_POLICIES = {
    "bandit": "slack_factor",
    "truncation_selection": "truncation_percentage",
    "median_stopping": "",
}
_MOST_WHOLE = 1000
_LONGEST = 100_000
_Number = TypeVar("_Number", int, float)


def sweep_of(
    job: Mapping[str, Any],
    parameters: Mapping[str, Any],
    goal: str,
    *,
    trials: int,
    concurrent: int | None = None,
    algorithm: str = "random",
    seed: int | None = None,
    early_termination: Mapping[str, Any] | str | None = None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """The document of a sweep over a command job.

    Args:
        job: the document of a job; its `inputs` of a parameter's name give way to the parameter.
        parameters: ranges as text, see `range_of`, or mappings as in a sweep's file.
        goal: `minimize:val_loss` or `maximize:accuracy`.
        concurrent: how many trials run at once; all when None.
        early_termination: a mapping as in a sweep's file, or text, see `policy_of`.

    Raises:
        InvalidInput: a range, the goal or the policy can't be read.
    """
    if not isinstance(parameters, Mapping):
        raise InvalidInput(
            "the search space is not a mapping of hyperparameters to ranges",
            'write for example `{"lr": "loguniform:1e-5,1e-1"}`',
        )
    if str(job.get("type") or "command").strip().lower() != "command":
        raise InvalidSpec(
            f"a sweep is made of a command job, and this is of type {job['type']}",
            "submit a file of `type: sweep` with `yard job create`",
            at=("type",),
        )
    sweep = {key: value for key, value in job.items() if key not in (*_OF_TRIAL, "type", "$schema")}
    limits = dict(job.get("limits") or {})
    bounds = {
        "max_total_trials": trials,
        "max_concurrent_trials": concurrent,
        "timeout": timeout_s,
        "trial_timeout": limits.pop("timeout", None),
    }
    inputs = job.get("inputs")
    if isinstance(inputs, Mapping):
        sweep["inputs"] = {name: inputs[name] for name in inputs if name not in parameters}
    sweep |= {
        "type": "sweep",
        "trial": {key: job[key] for key in _OF_TRIAL if key in job},
        "search_space": {name: _space(name, value) for name, value in parameters.items()},
        "sampling_algorithm": {"type": algorithm} | ({} if seed is None else {"seed": seed}),
        "objective": _objective(goal),
        "limits": {**limits, **{key: value for key, value in bounds.items() if value is not None}},
    }
    if early_termination:
        sweep["early_termination"] = _policy(early_termination)
    return sweep


def _space(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return range_of(name, value)
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"`{str(value)[:80]}` is not a range for `{name}`",
            "write for example `choice:a,b` or `uniform:0,1`, or a mapping as in a sweep's file",
        )
    return dict(value)


def _policy(value: Mapping[str, Any] | str) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else policy_of(str(value))


def policy_of(text: str) -> dict[str, Any]:
    """A policy of early termination: `bandit:0.1`, `median_stopping`, `truncation_selection:20`.

    Raises:
        InvalidInput: none of these.
    """
    kind, _, value = text.partition(":")
    kind = kind.strip().lower().replace("-", "_")
    key = _POLICIES.get(kind, "")
    if kind not in _POLICIES or bool(value) != bool(key):
        raise InvalidInput(
            f"`{text[:80]}` is not a policy of early termination",
            "write bandit:0.1, median_stopping or truncation_selection:20",
        )
    if not key:
        return {"type": kind}
    try:
        (number,) = _numbers([value], 1)
    except ValueError as error:
        raise InvalidInput(
            f"`{text[:80]}` is not a policy of early termination: {error}",
            "write bandit:0.1, median_stopping or truncation_selection:20",
        ) from error
    return {"type": kind, key: int(number) if number.is_integer() else number}


def _objective(goal: str) -> dict[str, str]:
    goal = str(goal)
    direction, colon, metric = (part.strip() for part in goal.partition(":"))
    if direction.lower() not in _GOALS or not colon or not metric:
        raise InvalidInput(
            f"`{goal[:80]}` is not a goal", "write `minimize:val_loss` or `maximize:accuracy`"
        )
    return {"goal": direction.lower(), "primary_metric": metric}


def range_of(name: str, text: str) -> dict[str, Any]:
    """A distribution of a search space.

    `choice:sgd,adam`, `uniform:0,1`, `loguniform:1e-5,1e-1`, `quniform:0,1,0.1`,
    `qloguniform:16,1024,16`, `int:1,8`, `randint:10` (0 to 9), `normal:0,1`, `qnormal:0,1,0.5`,
    and `lognormal`, `qlognormal`, whose two numbers are of the logarithm.

    Raises:
        InvalidInput: none of these.
    """
    kind, colon, rest = text[:_LONGEST].partition(":")
    kind = kind.strip().lower()
    words = [word.strip() for word in rest.split(",")] if rest.strip() else []
    make = _KINDS.get(kind)
    if make is None or not colon:
        guess = nearest(kind, _KINDS)
        raise InvalidInput(
            f"`{text[:80]}` is not a range for `{name}`",
            f"did you mean `{guess}:{rest[:80]}`?"
            if guess and guess != kind
            else "write for example `uniform:0,1`, `loguniform:1e-5,1e-1` or `choice:a,b`",
        )
    try:
        return make(words)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"`{text[:80]}` is not a range for `{name}`: {error}", f"write {_EXAMPLES[kind]}"
        ) from error


def _numbers(words: Sequence[str], count: int) -> list[float]:
    if len(words) != count:
        raise ValueError(f"it needs {count} numbers")
    numbers = [_number(word, float) for word in words]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("numbers must be finite")
    return numbers


def _number(word: str, kind: Callable[[str], _Number]) -> _Number:
    try:
        return kind(word)
    except ValueError as error:
        name = "whole number" if kind is int else "number"
        raise ValueError(f"`{word[:80]}` is not a {name}") from error


def _bounds(low: float, high: float) -> tuple[float, float]:
    if low >= high:
        raise ValueError("the first number must be below the second")
    return low, high


def _uniform(words: Sequence[str]) -> dict[str, Any]:
    low, high = _bounds(*_numbers(words, 2))
    return {"type": "uniform", "min_value": low, "max_value": high}


def _loguniform(words: Sequence[str]) -> dict[str, Any]:
    low, high = _bounds(*_numbers(words, 2))
    return {"type": "loguniform", "min_value": _ln(low), "max_value": _ln(high)}


def _quniform(words: Sequence[str]) -> dict[str, Any]:
    low, high, q = _numbers(words, 3)
    _bounds(low, high)
    return {"type": "quniform", "min_value": low, "max_value": high, "q": q}


def _qloguniform(words: Sequence[str]) -> dict[str, Any]:
    low, high, q = _numbers(words, 3)
    _bounds(low, high)
    return {"type": "qloguniform", "min_value": _ln(low), "max_value": _ln(high), "q": q}


def _int(words: Sequence[str]) -> dict[str, Any]:
    low, high = (_number(word, int) for word in words) if len(words) == 2 else (1, 0)
    if low > high:
        raise ValueError("it needs the lowest and the highest whole number")
    if high - low < _MOST_WHOLE:
        return {"type": "choice", "values": list(range(low, high + 1))}
    return {"type": "quniform", "min_value": low, "max_value": high, "q": 1}


def _randint(words: Sequence[str]) -> dict[str, Any]:
    if len(words) != 1:
        raise ValueError("it needs one whole number")
    return {"type": "randint", "upper": _number(words[0], int)}


def _normal(kind: str) -> Callable[[Sequence[str]], dict[str, Any]]:
    def make(words: Sequence[str]) -> dict[str, Any]:
        if kind.startswith("q"):
            mu, sigma, q = _numbers(words, 3)
            return {"type": kind, "mu": mu, "sigma": sigma, "q": q}
        mu, sigma = _numbers(words, 2)
        return {"type": kind, "mu": mu, "sigma": sigma}

    return make


def _choice(words: Sequence[str]) -> dict[str, Any]:
    if not words or not all(words):
        raise ValueError("it needs values with commas between them")
    return {"type": "choice", "values": [_scalar(word) for word in words]}


def _scalar(word: str) -> str | int | float | bool:
    """A number or a boolean as itself, all else as text."""
    try:
        value = json.loads(word)
    except (ValueError, RecursionError):
        return word
    return value if isinstance(value, bool | int | float) else word


def _ln(value: float) -> float:
    if value <= 0:
        raise ValueError("logarithmic ranges begin above 0")
    return math.log(value)


_KINDS: dict[str, Callable[[Sequence[str]], dict[str, Any]]] = {
    "choice": _choice,
    "uniform": _uniform,
    "loguniform": _loguniform,
    "quniform": _quniform,
    "qloguniform": _qloguniform,
    "int": _int,
    "randint": _randint,
    **{kind: _normal(kind) for kind in ("normal", "lognormal", "qnormal", "qlognormal")},
}
_EXAMPLES = {
    "choice": "`choice:sgd,adam`",
    "uniform": "`uniform:0,1`",
    "loguniform": "`loguniform:1e-5,1e-1`: the values themselves",
    "quniform": "`quniform:0,1,0.1`",
    "qloguniform": "`qloguniform:16,1024,16`",
    "int": "`int:1,8`",
    "randint": "`randint:10`, for 0 to 9",
    "normal": "`normal:0,1`",
    "lognormal": "`lognormal:0,1`",
    "qnormal": "`qnormal:0,1,0.5`",
    "qlognormal": "`qlognormal:0,1,0.5`",
}
