"""Models in MLflow's words.

Owns: finding registered models and versions, the JSON of these and of logged models, where their
files are under `mlflow-artifacts:/`.
Leaves: the rows and the files to models/.
Always: a model registered by `yard` and one registered by MLflow look alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.mlflow.calls import Call
from torchyard.mlflow.errors import AlreadyExists, EndpointNotFound
from torchyard.mlflow.translate import key_value_list, read_tags, to_milliseconds
from torchyard.models import actions, logged, registry
from torchyard.models.types import LoggedMetric, LoggedModel, Model, Registered
from torchyard.shared.record_rules import number_json

IS_PROMPT = "mlflow.prompt.is_prompt"
MODEL_VERSIONS_TAG = "mlflow.modelVersions"
REGISTERED_FOLDER = "registered"
# A property of a version without files that was copied from another one without files: where the
# files of that one are.
STORAGE_LOCATION = "storage_location"
# MLflow's names for the status of a logged model.
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


def get_registered(db: Database, workspace: str, name: str) -> registry.ModelVersions:
    """
    Raises:
        NotFound: in MLflow's words.
    """
    try:
        return registry.get_with_versions(db, workspace, name)
    except NotFound as error:
        raise model_not_found(name) from error


def get_version(db: Database, workspace: str, name: str, version: str) -> Model:
    """
    Raises:
        InvalidInput: `version` is not a number.
        NotFound: in MLflow's words.
    """
    number = parse_version(version)
    try:
        return actions.get(db, workspace, name, str(number))
    except NotFound as error:
        raise version_not_found(name, version) from error


def model_not_found(name: str) -> NotFound:
    return NotFound(f"Registered Model with name={name[:300]} not found")


def version_not_found(name: str, version: str) -> NotFound:
    return NotFound(f"Model Version (name={name[:300]}, version={version[:50]}) not found")


def name_taken(name: str, error: Conflict) -> AlreadyExists:
    return AlreadyExists(f"Registered Model (name={name}) already exists. Error: {error.message}")


def parse_version(text: str) -> int:
    """
    Raises:
        InvalidInput: it is not a number.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidInput(f"Parameter 'version' must be an integer, got '{text[:50]}'.")
    return int(text)


def model_tags(call: Call) -> dict[str, str]:
    """The field `tags` of a model or a version.

    Raises:
        NoSuchEndpoint: it is a prompt, and they are not served.
    """
    tags = read_tags(call)
    if IS_PROMPT in tags:
        raise EndpointNotFound("torchyard does not store prompts")
    return tags


def registered_json(registered: Registered, versions: Sequence[Model]) -> dict[str, Any]:
    """
    Args:
        versions: those that are not archived, newest first.
    """
    return {
        "name": registered.name,
        "creation_timestamp": to_milliseconds(registered.created_at),
        "last_updated_timestamp": to_milliseconds(registered.updated_at),
        "description": registered.description,
        "latest_versions": [
            version_json(model, version_aliases(registered, model.version))
            for model in registry.newest_of_stages(versions)
        ],
        "tags": key_value_list(registered.tags),
        "aliases": [
            {"alias": alias, "version": str(version)}
            for alias, version in sorted(registered.aliases.items())
        ],
    }


def version_aliases(registered: Registered, version: int) -> list[str]:
    return sorted(alias for alias, number in registered.aliases.items() if number == version)


def load_version_json(db: Database, model: Model) -> dict[str, Any]:
    """A version with its aliases."""
    return version_json(model, registry.aliases_of(db, model))


def version_json(model: Model, aliases: Sequence[str]) -> dict[str, Any]:
    return {
        "name": model.name,
        "version": str(model.version),
        "creation_timestamp": to_milliseconds(model.created_at),
        "last_updated_timestamp": to_milliseconds(model.updated_at or model.created_at),
        "current_stage": model.stage or registry.NO_STAGE,
        "description": model.description,
        "source": model.source,
        "run_id": model.job,
        "run_link": model.run_link,
        "status": "READY",
        "tags": key_value_list(model.tags),
        "aliases": list(aliases),
        **({"model_id": model.model_id} if model.model_id else {}),
    }


def logged_model_json(
    model: LoggedModel, experiment_id: str, metrics: Sequence[LoggedMetric]
) -> dict[str, Any]:
    """
    Args:
        experiment_id: as the client knows it.
    """
    optional = {"model_type": model.type, "source_run_id": model.run}
    return {
        "info": {
            "model_id": model.id,
            "experiment_id": experiment_id,
            "name": model.name,
            "artifact_uri": logged_model_uri(model),
            "creation_timestamp_ms": to_milliseconds(model.created_at),
            "last_updated_timestamp_ms": to_milliseconds(model.updated_at),
            "status": _STATUS_NAMES[model.status],
            "tags": key_value_list(model.tags),
            **{name: text for name, text in optional.items() if text},
        },
        "data": {
            "params": key_value_list(model.params),
            "metrics": [_logged_metric_json(metric) for metric in metrics],
        },
    }


def parse_logged_model_status(value: Any) -> str:
    """
    Raises:
        InvalidInput: MLflow has no such status.
    """
    status = _STATUSES.get(str(value))
    if status is None:
        raise InvalidInput(f"Invalid value for parameter 'status': `{str(value)[:50]}`")
    return status


def logged_model_uri(model: LoggedModel) -> str:
    """The URI of a logged model's files."""
    return f"mlflow-artifacts:/{model.experiment_id}/models/{model.id}/artifacts"


def version_uri(model: Model) -> str:
    """The URI of a version's files: on this server, or the one that its source names."""
    if not model.files:
        return model.properties.get(STORAGE_LOCATION, model.source)
    return f"mlflow-artifacts:/{REGISTERED_FOLDER}/{_escaped(model.name)}/{model.version}"


def name_in_path(text: str) -> str:
    """The name that `version_root` wrote.

    Raises:
        NotFound: it never wrote such a text.
    """
    try:
        return unquote(text.replace("%", "%25").replace("~", "%"), errors="strict")
    except UnicodeDecodeError as error:
        raise model_not_found(text) from error


def _escaped(name: str) -> str:
    """A name as one part of a path that clients, each with rules of its own, leave unquoted."""
    return _UNSAFE.sub(lambda match: b"~%02X" % ord(match[0]), name.encode()).decode()


def _logged_metric_json(metric: LoggedMetric) -> dict[str, Any]:
    optional: Mapping[str, str] = {
        "dataset_name": metric.dataset_name,
        "dataset_digest": metric.dataset_digest,
        "run_id": metric.run,
    }
    return {
        "key": metric.key,
        "value": number_json(metric.value),
        "timestamp": metric.timestamp,
        "step": metric.step,
        "model_id": metric.model_id,
        **{name: text for name, text in optional.items() if text},
    }
