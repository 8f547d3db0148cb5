"""Azure's sweep job as our document.

Owns: the keys that only a sweep has: space, sampling, objective, termination, limits, trial.
Leaves: the keys that a sweep shares with a command job to job_documents.py; the rules of the
document to sweeps/spec; the opposite direction to sweep_resources.py.
Always: a key is translated, or refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.job_documents import (
    COMMON_READERS,
    SAME_KEYS,
    TRIAL_READERS,
    KeyReader,
    Reader,
    choice_of,
    duration_s,
    mapping_at,
    text_at,
)
from torchyard.azureml.common.calls import refuse_others
from torchyard.base.errors import InvalidSpec

KIND = "sweep"

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "randint": ("upper",),
    "uniform": ("min_value", "max_value"),
    "loguniform": ("min_value", "max_value"),
    "quniform": ("min_value", "max_value", "q"),
    "qloguniform": ("min_value", "max_value", "q"),
    "normal": ("mu", "sigma"),
    "lognormal": ("mu", "sigma"),
    "qnormal": ("mu", "sigma", "q"),
    "qlognormal": ("mu", "sigma", "q"),
}
"""The arguments of each function of a space, in Azure's order."""

CHOICE = "choice"
ALGORITHMS = {"random": "random", "grid": "grid", "bayesian": "bayesian"}
POLICIES = {
    "bandit": "bandit",
    "medianstopping": "median_stopping",
    "truncationselection": "truncation_selection",
}
POLICY_KEYS = {
    "evaluationInterval": "evaluation_interval",
    "delayEvaluation": "delay_evaluation",
    "slackFactor": "slack_factor",
    "slackAmount": "slack_amount",
    "truncationPercentage": "truncation_percentage",
}
LIMIT_KEYS = {
    "maxTotalTrials": "max_total_trials",
    "maxConcurrentTrials": "max_concurrent_trials",
}
TIMEOUT_KEYS = {"timeout": "timeout", "trialTimeout": "trial_timeout"}

# Choices may hold further spaces; the SDK itself writes two levels.
_MAX_DEPTH = 8
_AT_SPACE = ("properties", "searchSpace")


def read(reader: Reader, name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The document of the sweep that a client sends.

    Raises:
        InvalidSpec: a value of the wrong form, or an unknown key.
        NotFound: it names something in another workspace.
    """
    start = {"type": KIND, "name": name}
    document = reader.read_keys(start, properties, SAME_KEYS, _READERS)
    # Clients send the trial's resources a second time, as the sweep's.
    if document.get("resources") == document.get("trial", {}).get("resources"):
        document.pop("resources", None)
    return document


def parameter(name: str, expression: Any) -> dict[str, Any]:
    """One parameter of a space: `["uniform", [0.1, 0.2]]` as `{"type": "uniform", …}`.

    Raises:
        InvalidSpec: it is not a function of a space with its arguments.
    """
    return _parameter(expression, (*_AT_SPACE, name), 0)


def _parameter(expression: Any, at: tuple[str, ...], depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise InvalidSpec("the search space is nested too deeply", "use fewer levels", at=at)
    if not isinstance(expression, list) or len(expression) != 2:
        raise _not_a_function(expression, at)
    function, arguments = str(expression[0]).lower(), expression[1]
    if not isinstance(arguments, list):
        raise _not_a_function(expression, at)
    if function == CHOICE:
        if len(arguments) != 1 or not isinstance(arguments[0], list):
            raise _not_a_function(expression, at)
        return {"type": CHOICE, "values": [_value(item, at, depth) for item in arguments[0]]}
    names = ARGUMENTS.get(function)
    if names is None or len(arguments) != len(names):
        raise _not_a_function(expression, at)
    return {"type": function, **dict(zip(names, arguments, strict=True))}


def _value(value: Any, at: tuple[str, ...], depth: int) -> Any:
    """A value of a choice; an object of values is a space of its own."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: _parameter(item, (*at, str(name)), depth + 1) if _is_function(item) else item
        for name, item in value.items()
    }


def _is_function(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[1], list)


def _not_a_function(expression: Any, at: tuple[str, ...]) -> InvalidSpec:
    return InvalidSpec(
        f"`{at[-1]}` of the search space is `{str(expression)[:60]}`",
        f'write it like `["uniform", [0.1, 0.2]]`; functions: {", ".join((CHOICE, *ARGUMENTS))}',
        at=at,
    )


def _space(reader: Reader, value: Any) -> dict[str, Any]:
    space = mapping_at(value, "searchSpace")
    return {"search_space": {name: parameter(name, item) for name, item in space.items()}}


def _sampling(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "samplingAlgorithm")
    at = ("properties", "samplingAlgorithm")
    refuse_others(document, ("samplingAlgorithmType", "seed", "rule", "logbase"), at)
    kind = str(document.get("samplingAlgorithmType") or "")
    algorithm = choice_of(kind, ALGORITHMS, (*at, "samplingAlgorithmType"))
    options = {
        key: document[key] for key in ("seed", "rule", "logbase") if document.get(key) is not None
    }
    if isinstance(options.get("rule"), str):
        options["rule"] = options["rule"].lower()
    return {"sampling_algorithm": {"type": algorithm, **options}}


def _objective(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "objective")
    at = ("properties", "objective")
    refuse_others(document, ("goal", "primaryMetric"), at)
    goal = text_at(document.get("goal") or "", "goal", at).lower()
    metric = text_at(document.get("primaryMetric") or "", "primaryMetric", at)
    return {"objective": {"goal": goal, "primary_metric": metric}}


def _termination(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "earlyTermination")
    at = ("properties", "earlyTermination")
    refuse_others(document, ("policyType", *POLICY_KEYS), at)
    kind = str(document.get("policyType") or "")
    policy: dict[str, Any] = {"type": choice_of(kind, POLICIES, (*at, "policyType"))}
    for key, name in POLICY_KEYS.items():
        if document.get(key) is not None:
            policy[name] = document[key]
    return {"early_termination": policy}


def _limits(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "limits")
    at = ("properties", "limits")
    refuse_others(document, ("jobLimitsType", *LIMIT_KEYS, *TIMEOUT_KEYS), at)
    limits: dict[str, Any] = {
        name: document[key] for key, name in LIMIT_KEYS.items() if document.get(key) is not None
    }
    for key, name in TIMEOUT_KEYS.items():
        if document.get(key):
            limits[name] = duration_s(text_at(document[key], key, at), (*at, key))
    return {"limits": limits} if limits else {}


def _trial(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "trial")
    trial = reader.read_keys({}, document, {"command": "command"}, TRIAL_READERS)
    # `compute: local` is written among the trial's resources.
    compute = trial.pop("compute", None)
    return {"trial": trial, **({"compute": compute} if compute else {})}


_READERS: Mapping[str, KeyReader] = {
    **COMMON_READERS,
    "resources": TRIAL_READERS["resources"],
    "searchSpace": _space,
    "samplingAlgorithm": _sampling,
    "objective": _objective,
    "earlyTermination": _termination,
    "limits": _limits,
    "trial": _trial,
}
