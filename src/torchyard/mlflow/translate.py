"""Runs and experiments in MLflow's words.

Owns: status names, the tags MLflow expects, the JSON of runs and experiments, records of a call.
Leaves: finding and changing to the routes.
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
from torchyard.mlflow.calls import Call, integer, invalid, missing
from torchyard.models.types import RunModel
from torchyard.shared import record_rules

RUN_NAME = "mlflow.runName"
PARENT = "mlflow.parentRunId"
USER = "mlflow.user"
LOGGED_MODELS = "mlflow.log-model.history"
# On an input: what the run used it for.
CONTEXT = "mlflow.data.context"
# The tags that every run has, and the attribute or the text that they hold.
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
    # Nothing will ever schedule a run that is no job, so to torchyard it just runs.
    "SCHEDULED": Status.RUNNING,
    "FINISHED": Status.COMPLETED,
    "FAILED": Status.FAILED,
    "KILLED": Status.CANCELED,
}
# MLflow's protocol buffers number them, and JSON may carry the number.
_STATUS_NUMBERS = dict(enumerate(("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"), 1))


def status_name(status: Status) -> str:
    return _FROM_STATUS.get(status, "RUNNING")


def status_from(name: Any) -> Status:
    """
    Raises:
        InvalidInput: MLflow has no such status.
    """
    if isinstance(name, int) and name in _STATUS_NUMBERS:
        name = _STATUS_NUMBERS[name]
    if not isinstance(name, str) or name not in _TO_STATUS:
        raise invalid("status", name, f"it is one of {', '.join(_TO_STATUS)}.")
    return _TO_STATUS[name]


def with_our_statuses(
    conditions: Sequence[Condition], holds: Callable[[Condition, Any], bool]
) -> list[Condition]:
    """Conditions on MLflow's statuses as conditions on ours, of which there are more."""
    return [
        Condition(
            one.kind,
            one.key,
            "IN",
            tuple(ours.value for ours in Status if holds(one, status_name(ours))),
        )
        if (one.kind, one.key) == ("attribute", "status")
        else one
        for one in conditions
    ]


def milliseconds(moment: datetime | None) -> int | None:
    """Whole ms, the rest cut off, as the database does it in a search."""
    return None if moment is None else (moment - _EPOCH) // _MILLISECOND


def run_name(job: Job) -> str:
    return job.tags.get(RUN_NAME) or job.display_name or job.name


def tags_of(job: Job) -> dict[str, str]:
    """The job's own tags and those MLflow expects on every run."""
    implied = {USER: job.owner, "mlflow.source.type": "JOB", RUN_NAME: run_name(job)}
    if job.parent:
        implied[PARENT] = job.parent
    return {**implied, **job.tags}


def artifact_root(job: Job) -> str:
    """Where a client puts the artifacts: our own place, or the one that the experiment wants."""
    own_place = f"mlflow-artifacts:/{job.experiment_id}/{job.name}/artifacts"
    return job.properties.get(ARTIFACT_URI) or own_place


def info_json(job: Job, experiment_id: str) -> dict[str, Any]:
    """`experiment_id`: as the client knows it."""
    info: dict[str, Any] = {
        "run_uuid": job.name,
        "run_id": job.name,
        "run_name": run_name(job),
        "experiment_id": experiment_id,
        "user_id": job.owner,
        "status": status_name(job.status),
        "start_time": milliseconds(job.started_at or job.created_at),
        "artifact_uri": artifact_root(job),
        "lifecycle_stage": "deleted" if job.deleted else "active",
    }
    if job.ended_at is not None:
        info["end_time"] = milliseconds(job.ended_at)
    return info


def run_json(
    job: Job,
    experiment_id: str,
    data: RunData,
    models: Sequence[RunModel] = (),
    datasets: Sequence[DatasetInput] = (),
) -> dict[str, Any]:
    """`models`: the logged models that the run used and made; `datasets`: what it was given."""
    used = [{"model_id": one.model_id} for one in models if one.kind == "input"]
    made = [{"model_id": one.model_id, "step": one.step} for one in models if one.kind == "output"]
    return {
        "info": info_json(job, experiment_id),
        "data": {
            "metrics": [metric_json(one.key, one) for one in data.metrics],
            "params": pairs(data.params),
            "tags": pairs(tags_of(job)),
        },
        "inputs": {
            "dataset_inputs": [dataset_json(one) for one in datasets],
            "model_inputs": used,
        },
        "outputs": {"model_outputs": made},
    }


def dataset_json(given: DatasetInput) -> dict[str, Any]:
    told = {"name": given.name, "digest": given.digest}
    told |= {"source_type": given.source_type, "source": given.source}
    if given.schema:
        told["schema"] = given.schema
    if given.profile:
        told["profile"] = given.profile
    return {"dataset": told, "tags": pairs(given.tags)}


def dataset_records(call: Call) -> list[DatasetInput]:
    """The field `datasets` of a call that tells what a run was given.

    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    found = []
    for place, item in enumerate(call.objects("datasets")):
        path = f"datasets[{place}]."
        dataset = item.get("dataset")
        if not isinstance(dataset, dict):
            raise missing(path + "dataset") if dataset is None else invalid(path, dataset)
        inner = Call(call.workspace, call.identity, item)
        tags = tags_in(inner)
        found.append(
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
    return found


def metric_json(key: str, one: Metric | Point) -> dict[str, Any]:
    return {
        "key": key,
        "value": record_rules.number_json(one.value),
        "timestamp": one.timestamp,
        "step": one.step,
    }


def experiment_json(experiment: Experiment, told_id: str) -> dict[str, Any]:
    own_place = f"mlflow-artifacts:/{experiment.id}"
    return {
        "experiment_id": told_id,
        "name": experiment.name,
        "artifact_location": experiment.artifact_location or own_place,
        "lifecycle_stage": "deleted" if experiment.deleted else "active",
        "creation_time": milliseconds(experiment.created_at),
        "last_update_time": milliseconds(experiment.updated_at or experiment.created_at),
        "tags": pairs(experiment.tags),
    }


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def tags_in(call: Call) -> dict[str, str]:
    """The field `tags`, a list of keys and values."""
    records = [tag_record(item) for item in call.objects("tags")]
    return {record.key: record.value for record in records}


def appended(tags: Mapping[str, str], key: str, item: Any) -> dict[str, str | None]:
    """The tag `key`, a list in JSON, with one more item; it begins anew if it was no list."""
    try:
        known = json.loads(tags.get(key, "[]"))
    except ValueError:
        known = []
    return {key: json.dumps([*(known if isinstance(known, list) else []), item])}


def metric_record(fields: Mapping[str, Any], path: str = "") -> Metric | ModelMetric:
    """
    Args:
        path: where in the request the fields stand, such as `metrics[0].`.

    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    key = _text(fields, "key", path)
    for name in ("value", "timestamp"):
        if fields.get(name) is None:
            raise missing(path + name)
    timestamp = integer(fields["timestamp"], path + "timestamp")
    if timestamp < 0:
        raise invalid(path + "timestamp", timestamp, "it must be a nonnegative long.")
    step = fields.get("step")
    number = 0 if step is None else integer(step, path + "step")
    return history_records.of_model(
        history_records.metric(key, fields["value"], timestamp, number), fields
    )


def param_record(fields: Mapping[str, Any], path: str = "") -> history_records.Param:
    """
    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    return history_records.param(_text(fields, "key", path), _text(fields, "value", path, ""))


def tag_record(fields: Mapping[str, Any], path: str = "") -> history_records.Tag:
    """
    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    return history_records.tag(_text(fields, "key", path), _text(fields, "value", path, ""))


def run_models(call: Call, run: str, kind: str) -> list[RunModel]:
    """The field `models` of a call that tells what a run used or made.

    Raises:
        InvalidInput: an item names no model.
    """
    found = []
    for item in call.objects("models"):
        inner = Call(call.workspace, call.identity, item)
        found.append(RunModel(run, kind, inner.text("model_id"), inner.integer("step", 0)))
    return found


def batch_records(call: Call) -> list[Record]:
    """The metrics, parameters and tags of one log-batch.

    Raises:
        InvalidInput: names the item and the field that is missing or wrong.
    """
    records: list[Record] = []
    kinds: tuple[tuple[str, Callable[[Mapping[str, Any], str], Record]], ...] = (
        ("metrics", metric_record),
        ("params", param_record),
        ("tags", tag_record),
    )
    for name, read in kinds:
        for place, item in enumerate(call.objects(name)):
            records.append(read(item, f"{name}[{place}]."))
    counted = Counter(one.key for one in records if isinstance(one, history_records.Param))
    twice = [key for key, count in counted.items() if count > 1]
    if twice:
        raise InvalidInput(f"Duplicate parameter keys have been submitted: {', '.join(twice)}")
    return records


def _text(fields: Mapping[str, Any], name: str, path: str, default: str | None = None) -> str:
    value = fields.get(name)
    if value is None and default is not None:
        return default
    if value is None or (value == "" and default is None):
        raise missing(path + name)
    if not isinstance(value, str):
        raise invalid(path + name, value)
    return value
