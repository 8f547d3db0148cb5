"""Runs and experiments in MLflow's words.

Owns: status names, the tags MLflow expects, the JSON of runs and experiments, records of a call.
Leaves: finding and changing them to the routes.
Always: int64 fields are JSON numbers, as MLflow's own server writes them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.jobs.history import history_records
from torchyard.jobs.history.history import RunData
from torchyard.jobs.history.history_records import Metric, ModelMetric, Record
from torchyard.jobs.history.metric_blocks import Point
from torchyard.jobs.records.dataset_inputs import DatasetInput
from torchyard.jobs.records.types import Experiment, Job, Status
from torchyard.jobs.requests.run_search import ARTIFACT_URI, Condition
from torchyard.mlflow.calls import Call, integer, invalid_parameter, missing_parameter
from torchyard.models.types import RunModel
from torchyard.shared import record_rules

RUN_NAME = "mlflow.runName"
PARENT = "mlflow.parentRunId"
USER = "mlflow.user"
LOGGED_MODELS = "mlflow.log-model.history"
# The tag of an input that says what the run used it for.
CONTEXT = "mlflow.data.context"
# The tags that every run has, and the attribute or text that is their value.
IMPLIED_TAGS = {
    RUN_NAME: "run_name",
    USER: "user_id",
    PARENT: "parent",
    "mlflow.source.type": "'JOB'",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)

_FROM_STATUS = {
    Status.NOT_STARTED: "SCHEDULED",
    Status.PREPARING: "SCHEDULED",
    Status.QUEUED: "SCHEDULED",
    Status.PROVISIONING: "SCHEDULED",
    Status.STARTING: "SCHEDULED",
    Status.COMPLETED: "FINISHED",
    Status.FAILED: "FAILED",
    Status.CANCELED: "KILLED",
}
_TO_STATUS = {
    "RUNNING": Status.RUNNING,
    # Nothing will ever schedule a run that is not a job, so for torchyard it is running.
    "SCHEDULED": Status.RUNNING,
    "FINISHED": Status.COMPLETED,
    "FAILED": Status.FAILED,
    "KILLED": Status.CANCELED,
}
# The numbers in MLflow's protocol buffers, which JSON may hold instead of the names.
_STATUS_NUMBERS = dict(enumerate(("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"), 1))


def status_name(status: Status) -> str:
    return _FROM_STATUS.get(status, "RUNNING")


def parse_status(name: Any) -> Status:
    """
    Raises:
        InvalidInput: MLflow has no such status.
    """
    if isinstance(name, int) and name in _STATUS_NUMBERS:
        name = _STATUS_NUMBERS[name]
    if not isinstance(name, str) or name not in _TO_STATUS:
        raise invalid_parameter("status", name, f"it must be one of {', '.join(_TO_STATUS)}.")
    return _TO_STATUS[name]


def translate_status_conditions(
    conditions: Sequence[Condition], matches: Callable[[Condition, Any], bool]
) -> list[Condition]:
    """Conditions on MLflow's statuses as conditions on torchyard's, of which there are more."""
    return [
        Condition(
            condition.kind,
            condition.key,
            "IN",
            tuple(status.value for status in Status if matches(condition, status_name(status))),
        )
        if (condition.kind, condition.key) == ("attribute", "status")
        else condition
        for condition in conditions
    ]


def to_milliseconds(time: datetime | None) -> int | None:
    """Whole ms since 1970, rounded down, as the database does in a search."""
    return None if time is None else (time - _EPOCH) // _MILLISECOND


def run_name(job: Job) -> str:
    return job.tags.get(RUN_NAME) or job.display_name or job.name


def run_tags(job: Job) -> dict[str, str]:
    """The job's own tags and those that MLflow expects of every run."""
    implied = {USER: job.owner, "mlflow.source.type": "JOB", RUN_NAME: run_name(job)}
    if job.parent:
        implied[PARENT] = job.parent
    return {**implied, **job.tags}


def artifact_uri(job: Job) -> str:
    """Where a client puts the artifacts: on this server, or where the experiment says."""
    server_uri = f"mlflow-artifacts:/{job.experiment_id}/{job.name}/artifacts"
    return job.properties.get(ARTIFACT_URI) or server_uri


def run_info_json(job: Job, experiment_id: str) -> dict[str, Any]:
    """
    Args:
        experiment_id: as the client knows it.
    """
    info: dict[str, Any] = {
        "run_uuid": job.name,
        "run_id": job.name,
        "run_name": run_name(job),
        "experiment_id": experiment_id,
        "user_id": job.owner,
        "status": status_name(job.status),
        "start_time": to_milliseconds(job.started_at or job.created_at),
        "artifact_uri": artifact_uri(job),
        "lifecycle_stage": "deleted" if job.deleted else "active",
    }
    if job.ended_at is not None:
        info["end_time"] = to_milliseconds(job.ended_at)
    return info


def run_json(
    job: Job,
    experiment_id: str,
    data: RunData,
    models: Sequence[RunModel] = (),
    datasets: Sequence[DatasetInput] = (),
) -> dict[str, Any]:
    """
    Args:
        experiment_id: as the client knows it.
        models: the logged models that the run used or created.
        datasets: the run's inputs.
    """
    inputs = [{"model_id": model.model_id} for model in models if model.kind == "input"]
    outputs = [
        {"model_id": model.model_id, "step": model.step}
        for model in models
        if model.kind == "output"
    ]
    return {
        "info": run_info_json(job, experiment_id),
        "data": {
            "metrics": [metric_json(metric.key, metric) for metric in data.metrics],
            "params": key_value_list(data.params),
            "tags": key_value_list(run_tags(job)),
        },
        "inputs": {
            "dataset_inputs": [dataset_json(dataset) for dataset in datasets],
            "model_inputs": inputs,
        },
        "outputs": {"model_outputs": outputs},
    }


def dataset_json(dataset: DatasetInput) -> dict[str, Any]:
    fields = {
        "name": dataset.name,
        "digest": dataset.digest,
        "source_type": dataset.source_type,
        "source": dataset.source,
    }
    if dataset.schema:
        fields["schema"] = dataset.schema
    if dataset.profile:
        fields["profile"] = dataset.profile
    return {"dataset": fields, "tags": key_value_list(dataset.tags)}


def read_datasets(call: Call) -> list[DatasetInput]:
    """The field `datasets` of a call that logs a run's inputs.

    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    datasets = []
    for index, item in enumerate(call.objects("datasets")):
        path = f"datasets[{index}]."
        dataset = item.get("dataset")
        if dataset is None:
            raise missing_parameter(path + "dataset")
        if not isinstance(dataset, dict):
            raise invalid_parameter(path, dataset)
        tags = read_tags(Call(call.workspace, call.identity, item))
        datasets.append(
            DatasetInput(
                name=_text(dataset, "name", path + "dataset."),
                digest=_text(dataset, "digest", path + "dataset."),
                source_type=_text(dataset, "source_type", path + "dataset."),
                source=_text(dataset, "source", path + "dataset."),
                schema=_text(dataset, "schema", path + "dataset.", ""),
                profile=_text(dataset, "profile", path + "dataset.", ""),
                context=tags.get(CONTEXT),
                tags=tags,
            )
        )
    return datasets


def metric_json(key: str, point: Metric | Point) -> dict[str, Any]:
    return {
        "key": key,
        "value": record_rules.number_json(point.value),
        "timestamp": point.timestamp,
        "step": point.step,
    }


def experiment_json(experiment: Experiment, client_id: str) -> dict[str, Any]:
    """
    Args:
        client_id: the experiment's id as the client knows it.
    """
    server_uri = f"mlflow-artifacts:/{experiment.id}"
    return {
        "experiment_id": client_id,
        "name": experiment.name,
        "artifact_location": experiment.artifact_location or server_uri,
        "lifecycle_stage": "deleted" if experiment.deleted else "active",
        "creation_time": to_milliseconds(experiment.created_at),
        "last_update_time": to_milliseconds(experiment.updated_at or experiment.created_at),
        "tags": key_value_list(experiment.tags),
    }


def key_value_list(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def read_tags(call: Call) -> dict[str, str]:
    """The field `tags`, a list of keys and values."""
    records = [read_tag(item) for item in call.objects("tags")]
    return {record.key: record.value for record in records}


def append_to_tag(tags: Mapping[str, str], key: str, item: Any) -> dict[str, str | None]:
    """The tag `key`, a JSON list, with one more item; a tag that is not a list is replaced."""
    try:
        items = json.loads(tags.get(key, "[]"))
    except ValueError:
        items = []
    return {key: json.dumps([*(items if isinstance(items, list) else []), item])}


def read_metric(fields: Mapping[str, Any], path: str = "") -> Metric | ModelMetric:
    """
    Args:
        path: where the fields are in the request, such as `metrics[0].`.

    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    key = _text(fields, "key", path)
    for name in ("value", "timestamp"):
        if fields.get(name) is None:
            raise missing_parameter(path + name)
    timestamp = integer(fields["timestamp"], path + "timestamp")
    if timestamp < 0:
        raise invalid_parameter(path + "timestamp", timestamp, "it must be a nonnegative long.")
    step = fields.get("step")
    number = 0 if step is None else integer(step, path + "step")
    return history_records.of_model(
        history_records.metric(key, fields["value"], timestamp, number), fields
    )


def read_param(fields: Mapping[str, Any], path: str = "") -> history_records.Param:
    """
    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    return history_records.param(_text(fields, "key", path), _text(fields, "value", path, ""))


def read_tag(fields: Mapping[str, Any], path: str = "") -> history_records.Tag:
    """
    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    return history_records.tag(_text(fields, "key", path), _text(fields, "value", path, ""))


def read_models(call: Call, run: str, kind: str) -> list[RunModel]:
    """The field `models` of a call that says what a run used or created.

    Raises:
        InvalidInput: an item names no model.
    """
    models = []
    for item in call.objects("models"):
        fields = Call(call.workspace, call.identity, item)
        models.append(RunModel(run, kind, fields.text("model_id"), fields.integer("step", 0)))
    return models


def read_batch(call: Call) -> list[Record]:
    """The metrics, parameters and tags of one log-batch.

    Raises:
        InvalidInput: names the item and the field that is missing or wrong.
    """
    records: list[Record] = []
    kinds: tuple[tuple[str, Callable[[Mapping[str, Any], str], Record]], ...] = (
        ("metrics", read_metric),
        ("params", read_param),
        ("tags", read_tag),
    )
    for name, read in kinds:
        for index, item in enumerate(call.objects(name)):
            records.append(read(item, f"{name}[{index}]."))
    counts = Counter(record.key for record in records if isinstance(record, history_records.Param))
    duplicates = [key for key, count in counts.items() if count > 1]
    if duplicates:
        keys = ", ".join(duplicates)
        raise InvalidInput(f"Duplicate parameter keys have been submitted: {keys}")
    return records


def _text(fields: Mapping[str, Any], name: str, path: str, default: str | None = None) -> str:
    value = fields.get(name)
    if value is None and default is not None:
        return default
    if value is None or (value == "" and default is None):
        raise missing_parameter(path + name)
    if not isinstance(value, str):
        raise invalid_parameter(path + name, value)
    return value
