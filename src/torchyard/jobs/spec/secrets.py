"""What a job keeps to itself.

Owns: checking `torchyard.secrets` and `torchyard.not_secrets` of a job's properties.
Leaves: the secrets of a document to base/documents/secret_variables.py; masking what is said about
a job to records/job_masking.py.
Always: a value that can't be masked is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.documents.secret_variables import HIDDEN, LEFT_OUT, MARKED, PLAIN, names_in
from torchyard.base.errors import InvalidInput, InvalidSpec, did_you_mean
from torchyard.jobs.spec.parts import mapping
from torchyard.shared import secret_values


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
        names = names_in(properties[key])
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
