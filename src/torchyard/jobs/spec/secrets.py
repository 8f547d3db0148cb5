"""What a job keeps to itself.

Owns: `torchyard.secrets` and `torchyard.not_secrets` of a job's properties; the secrets in a job's
document, and the document without them.
Leaves: which names and forms give a secret away to shared/secret_values.py; masking what is said
about a job to records/job_masking.py.
Always: a document is masked as it was written, whether or not it can be parsed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from torchyard.base.errors import InvalidInput, InvalidSpec, did_you_mean
from torchyard.base.fields import literal
from torchyard.jobs.spec.values import mapping
from torchyard.shared import secret_values
from torchyard.shared.masking import TOKENS, Masker

MARKED = "torchyard.secrets"
PLAIN = "torchyard.not_secrets"
# The part of a sweep's document that has the variables of its jobs.
_TRIAL = "trial"
HIDDEN, LEFT_OUT = secret_values.HIDDEN, secret_values.LEFT_OUT


def read(job: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """The job's properties with both lists as one text each, names joined by commas.

    Raises:
        InvalidSpec: a list names no variable of the job, or one that can't be masked.
    """
    properties = dict(mapping(job.get("properties") or {}, ("properties",), "`properties`"))
    for key in (MARKED, PLAIN):
        if key not in properties:
            continue
        at = ("properties", key)
        names = _names(properties[key])
        if names is None:
            raise InvalidSpec(
                f"`{key}` must be a list of variable names", f"write `{key}: [MY_PIN]`", at=at
            )
        for name in names:
            if name not in variables:
                raise InvalidSpec(
                    f"`{key}` names `{name[:80]}`, but the job has no such variable",
                    did_you_mean(name, variables, "add it to `environment_variables`"),
                    at=at,
                )
            if key == MARKED and 0 < len(variables[name]) < secret_values.SHORTEST_MARKED:
                raise InvalidSpec(
                    f"the value of `{name}` is too short to be masked in logs",
                    f"a secret needs {secret_values.SHORTEST_MARKED} characters or more",
                    at=at,
                )
        properties[key] = ",".join(names)
    for name, value in variables.items():
        if value == HIDDEN:
            raise InvalidSpec(
                f"the value of `{name}` is `{HIDDEN}`: it was a secret in the job that "
                "this file was exported from",
                f"give its value again, for example `--set environment_variables.{name}=…`",
                at=("environment_variables", name),
            )
    return properties


def check_present(variables: Mapping[str, str]) -> None:
    """
    Raises:
        InvalidInput: a secret was left out of the backup that this server was restored from.
    """
    names = [name for name, value in variables.items() if value == LEFT_OUT]
    if names:
        raise InvalidInput(
            f"the values of {', '.join(f'`{name}`' for name in names)} were left out of the backup "
            "that this server was restored from",
            "submit the job again with its secrets",
            code="secrets_missing",
        )


def marked(properties: Mapping[str, Any], key: str = MARKED) -> list[str]:
    """The names of one of the two lists."""
    return _names(properties.get(key)) or []


def values(document: Mapping[str, Any]) -> dict[str, int]:
    """The secrets in a job's document, and how short a part of each is still masked."""
    variables = _variables(document)
    return secret_values.of_environment(variables, *_lists(document)) if variables else {}


def masker(document: Mapping[str, Any]) -> Masker:
    """Masks the secrets of a job's document and this server's tokens."""
    secret_lengths = values(document)
    return _masker_of(tuple(sorted(secret_lengths.items()))) if secret_lengths else TOKENS


def masked_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """A job's document; secret variables have `HIDDEN` for their value."""
    trial = document.get(_TRIAL)
    if isinstance(trial, Mapping):
        inner = masked_document({**trial, "properties": document.get("properties")})
        inner.pop("properties")
        rest = {key: value for key, value in document.items() if key != _TRIAL}
        return {**masker(document).json(rest), _TRIAL: inner}
    variables = _variables(document)
    if not variables:
        return dict(TOKENS.json(document))
    secret_names, plain_names = _lists(document)
    hidden = {
        name
        for name, value in variables.items()
        if name in secret_names
        or secret_values.of_environment({name: value}, secret_names, plain_names)
    }
    visible = {name: HIDDEN if name in hidden else value for name, value in variables.items()}
    body = {key: value for key, value in document.items() if key != "environment_variables"}
    mask = masker(document).json
    return {**mask(body), "environment_variables": mask(visible)}


# A script that logs straight to the server asks for its own at every request.
@lru_cache(maxsize=64)
def _masker_of(secret_lengths: tuple[tuple[str, int], ...]) -> Masker:
    return Masker(secret_values.written(dict(secret_lengths)))


def _variables(document: Mapping[str, Any]) -> dict[str, str]:
    trial = document.get(_TRIAL)
    owner = trial if isinstance(trial, Mapping) else document
    variables = owner.get("environment_variables")
    if not isinstance(variables, Mapping):
        return {}
    return {str(name): literal(value) for name, value in variables.items()}


def _lists(document: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    properties = document.get("properties")
    if not isinstance(properties, Mapping):
        return [], []
    return marked(properties), marked(properties, PLAIN)


def _names(value: Any) -> list[str] | None:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    elif isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return None
    return [name for name in value if name]
