"""The secret variables in a document of a job, a component or a deployment.

Owns: which variables of a document are secret, by their names or by its two lists; the document
without them.
Leaves: which names and forms give a secret away to shared/secret_values.py; checking the lists to
jobs/spec/secrets.py.
Always: a document is masked as it was written, whether or not it can be parsed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from torchyard.base.fields import literal
from torchyard.base.sealed_columns import SealedJson
from torchyard.shared import secret_values
from torchyard.shared.masking import TOKENS, Masker

MARKED = "torchyard.secrets"
PLAIN = "torchyard.not_secrets"
# The parts of a document that have the variables of other jobs.
_TRIAL, _COMPONENT, _STEPS = "trial", "component", "jobs"
_PARTS = (_TRIAL, _COMPONENT)
HIDDEN, LEFT_OUT = secret_values.HIDDEN, secret_values.LEFT_OUT


def marked(properties: Mapping[str, Any], key: str = MARKED) -> list[str]:
    """The names of one of the two lists."""
    return names_in(properties.get(key)) or []


def values(document: Mapping[str, Any]) -> dict[str, int]:
    """The secrets in a job's document, and how short a part of each is still masked."""
    variables = _variables(document)
    found = secret_values.of_environment(variables, *_lists(document)) if variables else {}
    for part in _parts(document).values():
        found |= values(part)
    return found


def masker(document: Mapping[str, Any]) -> Masker:
    """Masks the secrets of a job's document and this server's tokens."""
    secret_lengths = values(document)
    return _masker_of(tuple(sorted(secret_lengths.items()))) if secret_lengths else TOKENS


def sealed(of: str) -> SealedJson:
    """The type of a column of documents; `of` names one, as "job `{name}`"."""
    return SealedJson(without_secrets, f"variables of {of}")


def without_secrets(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document as it is read without the home's key."""
    return masked_document(document, LEFT_OUT)


def masked_document(document: Mapping[str, Any], stand_in: str = HIDDEN) -> dict[str, Any]:
    """A job's document; secret variables have `stand_in` for their value."""
    variables, parts = _variables(document), _parts(document)
    if not variables and not parts:
        return dict(TOKENS.json(document))
    secret_names, plain_names = _lists(document)
    hidden = {
        name
        for name, value in variables.items()
        if name in secret_names
        or secret_values.of_environment({name: value}, secret_names, plain_names)
    }
    visible = {name: stand_in if name in hidden else value for name, value in variables.items()}
    inside = ("environment_variables", _STEPS, *_PARTS)
    mask = masker(document).json
    body: dict[str, Any] = mask(
        {key: value for key, value in document.items() if key not in inside}
    )
    body |= {key: mask(document[key]) for key in inside[1:] if key in document}
    if variables:
        body["environment_variables"] = mask(visible)
    for at, part in parts.items():
        inner = masked_document(part, stand_in)
        if at[0] == _STEPS:
            body[_STEPS] = {**body[_STEPS], at[1]: inner}
            continue
        body[at[0]] = inner
        if at[0] == _TRIAL:
            inner.pop("properties")
    return body


# A script that logs straight to the server asks for its own at every request.
@lru_cache(maxsize=64)
def _masker_of(secret_lengths: tuple[tuple[str, int], ...]) -> Masker:
    return Masker(secret_values.written(dict(secret_lengths)))


def _variables(document: Mapping[str, Any]) -> dict[str, str]:
    variables = document.get("environment_variables")
    if not isinstance(variables, Mapping):
        return {}
    return {str(name): literal(value) for name, value in variables.items()}


def _parts(document: Mapping[str, Any]) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """What has variables of its own, by its place: a trial, a component, steps."""
    parts: dict[tuple[str, ...], Mapping[str, Any]] = {}
    if isinstance(trial := document.get(_TRIAL), Mapping):
        # Its two lists are the sweep's.
        parts[_TRIAL,] = {**trial, "properties": document.get("properties")}
    if isinstance(component := document.get(_COMPONENT), Mapping):
        parts[_COMPONENT,] = component
    if isinstance(steps := document.get(_STEPS), Mapping):
        parts |= {
            (_STEPS, str(name)): step for name, step in steps.items() if isinstance(step, Mapping)
        }
    return parts


def _lists(document: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    properties = document.get("properties")
    if not isinstance(properties, Mapping):
        return [], []
    return marked(properties), marked(properties, PLAIN)


def names_in(value: Any) -> list[str] | None:
    """The names that one of the two lists says; None where it is not a list of names."""
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
