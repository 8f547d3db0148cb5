"""Values of a job file that its table of keys decides: known keys, names, choices.

Owns: checking the keys of a mapping, or one value, against the table.
Leaves: texts and numbers to base/fields.py, what the values mean to job_spec.py and its neighbours.
Always: an error says where by `at`, and gives the nearest right word when there is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchyard.base.errors import InvalidSpec, nearest
from torchyard.base.fields import described, text
from torchyard.jobs.spec import keys

NAME = re.compile(r"^[a-zA-Z0-9][\w-]{0,254}\Z", re.ASCII)
_EXPERIMENT = re.compile(r"^[a-zA-Z0-9](?:[\w -]{0,253}[\w-])?\Z", re.ASCII)

At = tuple[str | int, ...]

_EXAMPLES: Mapping[str | int, str] = {
    "command": "python train.py",
    "distribution": "{type: pytorch, process_count_per_instance: 2}",
    "resources": "{instance_count: 2}",
    "limits": "{timeout: 3600}",
    "outputs": "{NAME: {type: uri_folder}}",
    "queue_settings": "{job_tier: standard}",
    "services": "{NAME: {type: jupyter_lab}}",
}


def mapping(value: Any, at: At, subject: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        key = at[-1] if at else "command"
        raise InvalidSpec(
            f"{subject} must be a mapping of keys to values, not {described(value)}",
            f"for example `{key}: {_EXAMPLES.get(key, '{KEY: value}')}`",
            at=at,
        )
    return value


def section(job: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
    """The mapping below a key of the job, its keys checked; empty when it is left out."""
    body = mapping(job.get(key) or {}, (key,), f"`{key}`")
    known_keys(body, key, (key,))
    return body


_NODES = "write `resources: {instance_count: 2}`"
_GPUS = "GPUs come with the size of the `compute`: see `yard compute list-sizes`"
# What most others call what is served here.
_OTHER_NAMES = {
    ("", "nodes"): _NODES,
    ("distribution", "nodes"): _NODES,
    ("resources", "nodes"): "write `instance_count`",
    ("", "gpus"): _GPUS,
    ("resources", "gpus"): _GPUS,
    ("inputs.*", "local_path"): "write `path: azureml:NAME:VERSION`, a URL or a local path",
}


def known_keys(body: Mapping[Any, Any], path: str, at: At) -> None:
    """Every key of `body` is in the table below `path` and not refused there."""
    known_keys = keys.below(path)
    for key, value in body.items():
        known_key = known_keys.get(key) if isinstance(key, str) else None
        if known_key is None:
            raise _unknown(str(key), known_keys, path, at, body)
        if known_key.support == "refused" and value not in (None, "", [], {}, False):
            shown = ".".join([*map(str, at), str(key)])
            raise InvalidSpec(
                f"`{shown}` is not served", known_key.note, code="not_served", at=(*at, str(key))
            )


def name(body: Mapping[Any, Any], key: str, at: At = ()) -> str:
    value = text(body, key, at)
    if value and not NAME.match(value):
        raise InvalidSpec(
            f"`{value[:80]}` is not a valid `{key}`",
            "up to 255 letters, digits, `_` and `-`, beginning with a letter or digit",
            at=(*at, key),
        )
    return value


def experiment_name(body: Mapping[Any, Any]) -> str:
    """As a name, but with spaces: those of MLflow and of Azure's own examples have them."""
    value = text(body, "experiment_name", ())
    if value and not _EXPERIMENT.match(value):
        raise InvalidSpec(
            f"`{value[:80]}` is not a valid `experiment_name`",
            "up to 255 letters, digits, `_`, `-` and spaces, beginning with a letter or digit",
            at=("experiment_name",),
        )
    return value


def choice(body: Mapping[Any, Any], key: str, at: At, path: str, default: str) -> keys.Key:
    """One of the table's values of `path`, refused ones too; matched in any case and in camelCase.

    Raises:
        InvalidSpec: the value does not exist.
    """
    choices = {known_key.value: known_key for known_key in keys.values(path)}
    written = text(body, key, at, default) or default
    for value, known_key in choices.items():
        if _plain(written) == _plain(value):
            return known_key
    guess = nearest(written, choices)
    served = [value for value, known_key in choices.items() if known_key.support != "refused"]
    raise InvalidSpec(
        f"`{written}` is not a valid `{key}`",
        f"did you mean `{guess}`?" if guess else f"use one of: {', '.join(served)}",
        at=(*at, key),
    )


def served(body: Mapping[Any, Any], key: str, at: At, path: str, default: str) -> str:
    """The same, and a refused value is an error; empty when both it and the default are."""
    if not body.get(key) and not default:
        return ""
    chosen_key = choice(body, key, at, path, default)
    if chosen_key.support == "refused":
        raise refused(chosen_key, (*at, key))
    return chosen_key.value


def refused(key: keys.Key, at: At) -> InvalidSpec:
    return InvalidSpec(
        f"`{key.name}: {key.value}` is not served", key.note, code="not_served", at=at
    )


def _unknown(
    key: str, known_keys: Mapping[str, keys.Key], path: str, at: At, body: Mapping[Any, Any]
) -> InvalidSpec:
    writable = {name: known for name, known in known_keys.items() if known.note != keys.READ_ONLY}
    shown = ", ".join(sorted(name for name in writable if not name.startswith(("$", "*"))))
    # What changes nothing is not what somebody meant.
    honoured = [name for name, known in writable.items() if known.support == "honoured"]
    guess = nearest(key, [name for name in honoured if name != "*"])
    homes = [home.replace("*", "<name>") for home in keys.homes(key) if home != path]
    hint = f"known keys: {shown}; see docs/reference/job-file.md"
    inputs = body.get("inputs")
    near_input = nearest(key, list(map(str, inputs))) if isinstance(inputs, Mapping) else ""
    if (path, key) in _OTHER_NAMES:
        hint = _OTHER_NAMES[path, key]
    elif isinstance(inputs, Mapping) and key in inputs:
        hint = f"did you mean `inputs.{key}`?"
    elif guess and _plain(guess) in (_plain(key), f"{_plain(key)}s"):
        hint = f"did you mean `{guess}`?"
    elif path and key in keys.below(""):
        hint = f"`{key}` belongs at the top of the job file, not under `{at[0]}`"
    elif homes:
        hint = f"it belongs under `{homes[0]}`"
    elif guess:
        hint = f"did you mean `{guess}`?"
    elif not path and near_input:
        hint = f"did you mean `inputs.{near_input}`?"
    under = f" under `{'.'.join(map(str, at))}`" if at else ""
    error = InvalidSpec(f"unknown key `{key[:80]}`{under}", hint, at=(*at, key))
    error.meant_key = guess if hint == f"did you mean `{guess}`?" else ""
    return error


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").replace(" ", "").lower()
