"""What a job keeps to itself.

Owns: `torchyard.secrets` and `torchyard.not_secrets` of a job's properties; the job without its
secrets, for whoever asks; what masks the words of a job's own script.
Leaves: which names and forms give a secret away to shared/secret_values.py.
Always: what leaves the server for a person shows no secret of a job, not even to its owner; the
document in the database is whole, because the next attempt needs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec, nearest
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.jobs.spec.values import literal, mapping
from torchyard.shared import secret_values
from torchyard.shared.masking import TOKENS, Masker
from torchyard.workspaces.types import Identity, TokenKind

MARKED = "torchyard.secrets"
PLAIN = "torchyard.not_secrets"
HIDDEN = "*****"
"""Stands in answers for the value of a secret variable."""


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
                f"`{key}` must be a list of variables' names", f"write `{key}: [MY_PIN]`", at=at
            )
        for name in names:
            if name not in variables:
                near = nearest(name, list(variables))
                raise InvalidSpec(
                    f"`{key}` names `{name[:80]}`, and the job has no such variable",
                    f"did you mean `{near}`?" if near else "add it to `environment_variables`",
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
                f"the value of `{name}` is `{HIDDEN}`: it was a secret of the job this file is of",
                f"give it anew, for example `--set environment_variables.{name}=…`",
                at=("environment_variables", name),
            )
    return properties


def marked(properties: Mapping[str, Any], key: str = MARKED) -> list[str]:
    """The names of one of the two lists."""
    return _names(properties.get(key)) or []


def masker(job: Job) -> Masker:
    """What puts stars in place of the job's secrets and of this server's tokens."""
    return masker_of(values(job.spec))


def values(spec: Mapping[str, Any]) -> dict[str, int]:
    """The secrets in a job's document, and how short a part of each is still masked."""
    variables = _variables(spec)
    return secret_values.of_environment(variables, *_lists(spec)) if variables else {}


def masker_of(found: Mapping[str, int]) -> Masker:
    """What masks these values, as `values` gives them, and this server's tokens."""
    return _masker_of(tuple(sorted(found.items()))) if found else TOKENS


# A script that logs straight to the server asks for its own at every request.
@lru_cache(maxsize=64)
def _masker_of(found: tuple[tuple[str, int], ...]) -> Masker:
    return Masker(secret_values.written(dict(found)))


def masker_of_script(db: Database, identity: Identity) -> Masker | None:
    """What masks the words of the script that asks; None for a person, whose words are his own."""
    if identity.kind is not TokenKind.RUN:
        return None
    with db.read() as connection:
        job = store.job_named(connection, identity.workspace, identity.subject.partition("/")[2])
    return TOKENS if job is None else masker(job)


def without(job: Job, body: Any) -> Any:
    """A part of an answer about the job, its secrets masked wherever they stand."""
    return masker(job).json(body)


def spec_without(job: Job) -> dict[str, Any]:
    """The job's document; secret variables have `HIDDEN` for their value."""
    variables = _variables(job.spec)
    if not variables:
        return dict(TOKENS.json(job.spec))
    known, plain = _lists(job.spec)
    hidden = {
        name
        for name, value in variables.items()
        if name in known or secret_values.of_environment({name: value}, known, plain)
    }
    shown = {name: HIDDEN if name in hidden else value for name, value in variables.items()}
    body = {key: value for key, value in job.spec.items() if key != "environment_variables"}
    return {**without(job, body), "environment_variables": without(job, shown)}


def _variables(spec: Mapping[str, Any]) -> dict[str, str]:
    given = spec.get("environment_variables")
    if not isinstance(given, Mapping):
        return {}
    return {str(name): literal(value) for name, value in given.items()}


def _lists(spec: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    properties = spec.get("properties")
    given = properties if isinstance(properties, Mapping) else {}
    return marked(given), marked(given, PLAIN)


def _names(given: Any) -> list[str] | None:
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    elif isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        return None
    return [name for name in given if name]
