"""Models in MLflow's words.

Owns: what the routes of models use, the JSON of registered models, versions and logged models,
where their files lie under `mlflow-artifacts:/`.
Leaves: the rows and the files to models/.
Always: a model registered by `yard` and one registered by MLflow look alike here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.data.datastores import Datastores
from torchyard.mlflow.calls import Call
from torchyard.mlflow.errors import AlreadyExists, NoSuchEndpoint
from torchyard.mlflow.translate import milliseconds, pairs, tags_in
from torchyard.models import actions, logged, registry
from torchyard.models.types import FindSource, LoggedMetric, LoggedModel, Model, Registered
from torchyard.shared.record_rules import number_json

IS_PROMPT = "mlflow.prompt.is_prompt"
VERSIONS_OF = "mlflow.modelVersions"
REGISTERED = "registered"
# Of a version without files, made of another that has none either: where that one says they lie.
ELSEWHERE = "storage_location"
# MLflow's own names of a logged model's status.
_STATUS_NAMES = {
    logged.UNSPECIFIED: "LOGGED_MODEL_STATUS_UNSPECIFIED",
    logged.PENDING: "LOGGED_MODEL_PENDING",
    logged.READY: "LOGGED_MODEL_READY",
    logged.FAILED: "LOGGED_MODEL_UPLOAD_FAILED",
}
_STATUSES = {
    **{name: status for status, name in _STATUS_NAMES.items()},
    **{str(number): status for number, status in enumerate(_STATUS_NAMES)},
}
_UNSAFE = re.compile(rb"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Registry:
    """What the routes of models use, in one hand."""

    db: Database
    clock: Clock
    datastores: Datastores
    find: FindSource

    def registered(self, workspace: str, name: str) -> registry.Whole:
        """
        Raises:
            NotFound: in MLflow's words.
        """
        try:
            return registry.whole(self.db, workspace, name)
        except NotFound as error:
            raise no_such_model(name) from error

    def version(self, workspace: str, name: str, version: str) -> Model:
        """
        Raises:
            InvalidInput: `version` is no number.
            NotFound: in MLflow's words.
        """
        number = version_number(version)
        try:
            return actions.get(self.db, workspace, name, str(number))
        except NotFound as error:
            raise no_such_version(name, version) from error

    def shown(self, model: Model) -> dict[str, Any]:
        """A version with its aliases."""
        return version_json(model, registry.aliases_of(self.db, model))


def no_such_model(name: str) -> NotFound:
    return NotFound(f"Registered Model with name={name[:300]} not found")


def no_such_version(name: str, version: str) -> NotFound:
    return NotFound(f"Model Version (name={name[:300]}, version={version[:50]}) not found")


def name_taken(name: str, error: Conflict) -> AlreadyExists:
    return AlreadyExists(f"Registered Model (name={name}) already exists. Error: {error.message}")


def version_number(text: str) -> int:
    """
    Raises:
        InvalidInput: it is no number.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidInput(f"Parameter 'version' must be an integer, got '{text[:50]}'.")
    return int(text)


def tags_of_model(call: Call) -> dict[str, str]:
    """The field `tags` of a model or a version.

    Raises:
        NoSuchEndpoint: it is a prompt, and they are not served.
    """
    tags = tags_in(call)
    if IS_PROMPT in tags:
        raise NoSuchEndpoint("torchyard keeps no prompts")
    return tags


def registered_json(found: Registered, versions: Sequence[Model]) -> dict[str, Any]:
    """`versions`: those that are not archived, newest first."""
    return {
        "name": found.name,
        "creation_timestamp": milliseconds(found.created_at),
        "last_updated_timestamp": milliseconds(found.updated_at),
        "description": found.description,
        "latest_versions": [
            version_json(model, aliases_of(found, model.version))
            for model in registry.newest_of_stages(versions)
        ],
        "tags": pairs(found.tags),
        "aliases": [
            {"alias": alias, "version": str(version)}
            for alias, version in sorted(found.aliases.items())
        ],
    }


def aliases_of(found: Registered, version: int) -> list[str]:
    return sorted(alias for alias, number in found.aliases.items() if number == version)


def version_json(model: Model, aliases: Sequence[str]) -> dict[str, Any]:
    return {
        "name": model.name,
        "version": str(model.version),
        "creation_timestamp": milliseconds(model.created_at),
        "last_updated_timestamp": milliseconds(model.updated_at or model.created_at),
        "current_stage": model.stage or registry.NO_STAGE,
        "description": model.description,
        "source": model.source,
        "run_id": model.job,
        "run_link": model.run_link,
        "status": "READY",
        "tags": pairs(model.tags),
        "aliases": list(aliases),
        **({"model_id": model.model_id} if model.model_id else {}),
    }


def logged_json(
    model: LoggedModel, experiment_id: str, metrics: Sequence[LoggedMetric]
) -> dict[str, Any]:
    """`experiment_id`: as the client knows it."""
    told = {"model_type": model.type, "source_run_id": model.run}
    return {
        "info": {
            "model_id": model.id,
            "experiment_id": experiment_id,
            "name": model.name,
            "artifact_uri": logged_root(model),
            "creation_timestamp_ms": milliseconds(model.created_at),
            "last_updated_timestamp_ms": milliseconds(model.updated_at),
            "status": _STATUS_NAMES[model.status],
            "tags": pairs(model.tags),
            **{name: text for name, text in told.items() if text},
        },
        "data": {
            "params": pairs(model.params),
            "metrics": [_logged_metric_json(one) for one in metrics],
        },
    }


def logged_status(value: Any) -> str:
    """
    Raises:
        InvalidInput: MLflow has no such status.
    """
    found = _STATUSES.get(str(value))
    if found is None:
        raise InvalidInput(f"Invalid value for parameter 'status': `{str(value)[:50]}`")
    return found


def logged_root(model: LoggedModel) -> str:
    """Where a logged model's files lie."""
    return f"mlflow-artifacts:/{model.experiment_id}/models/{model.id}/artifacts"


def version_root(model: Model) -> str:
    """Where a version's files lie; where its source says when there are none here."""
    if not model.files:
        return model.properties.get(ELSEWHERE, model.source)
    return f"mlflow-artifacts:/{REGISTERED}/{_escaped(model.name)}/{model.version}"


def name_in_path(text: str) -> str:
    """The name that `version_root` wrote.

    Raises:
        NotFound: it wrote none such.
    """
    try:
        return unquote(text.replace("%", "%25").replace("~", "%"), errors="strict")
    except UnicodeDecodeError as error:
        raise no_such_model(text) from error


def _escaped(name: str) -> str:
    """A name as one part of a path that no client quotes, each in its own way."""
    return _UNSAFE.sub(lambda found: b"~%02X" % ord(found[0]), name.encode()).decode()


def _logged_metric_json(one: LoggedMetric) -> dict[str, Any]:
    told: Mapping[str, str] = {
        "dataset_name": one.dataset_name,
        "dataset_digest": one.dataset_digest,
        "run_id": one.run,
    }
    return {
        "key": one.key,
        "value": number_json(one.value),
        "timestamp": one.timestamp,
        "step": one.step,
        "model_id": one.model_id,
        **{name: text for name, text in told.items() if text},
    }
