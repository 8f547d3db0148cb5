"""Runs and experiments in MLflow's words.

Owns: status names, the tags MLflow expects, the JSON of runs and experiments, records of a call.
Leaves: finding and changing to the routes.
Always: int64 fields are JSON numbers, as MLflow's own server writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.jobs import history
from torchyard.jobs.history import Metric, Record, RunData
from torchyard.jobs.metric_blocks import Point
from torchyard.jobs.types import Experiment, Job, Status
from torchyard.mlflow.calls import Call, integer

RUN_NAME = "mlflow.runName"
PARENT = "mlflow.parentRunId"
USER = "mlflow.user"
LOGGED_MODELS = "mlflow.log-model.history"
# MLflow keeps data sets beside the tags; here they are one tag that is not shown as one.
DATASETS = "mlflow.torchyard.datasetInputs"

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


def status_name(status: Status) -> str:
    return _FROM_STATUS.get(status, "RUNNING")


def status_from(name: str) -> Status:
    """
    Raises:
        InvalidInput: MLflow has no such status.
    """
    found = _TO_STATUS.get(name)
    if found is None:
        raise InvalidInput(f"Invalid status '{name}'", f"it is one of {', '.join(_TO_STATUS)}")
    return found


def milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def run_name(job: Job) -> str:
    return job.tags.get(RUN_NAME) or job.display_name or job.name


def tags_of(job: Job) -> dict[str, str]:
    """The job's own tags and those MLflow expects on every run."""
    implied = {USER: job.owner, "mlflow.source.type": "JOB", RUN_NAME: run_name(job)}
    if job.parent:
        implied[PARENT] = job.parent
    both = {**implied, **job.tags}
    both.pop(DATASETS, None)
    return both


def artifact_root(job: Job) -> str:
    return f"mlflow-artifacts:/{job.experiment_id}/{job.name}/artifacts"


def info_json(job: Job) -> dict[str, Any]:
    info: dict[str, Any] = {
        "run_uuid": job.name,
        "run_id": job.name,
        "run_name": run_name(job),
        "experiment_id": str(job.experiment_id),
        "user_id": job.owner,
        "status": status_name(job.status),
        "start_time": milliseconds(job.started_at or job.created_at),
        "artifact_uri": artifact_root(job),
        "lifecycle_stage": "deleted" if job.deleted else "active",
    }
    if job.ended_at is not None:
        info["end_time"] = milliseconds(job.ended_at)
    return info


def run_json(job: Job, data: RunData) -> dict[str, Any]:
    return {
        "info": info_json(job),
        "data": {
            "metrics": [metric_json(one.key, one) for one in data.metrics],
            "params": pairs(data.params),
            "tags": pairs(tags_of(job)),
        },
        "inputs": {"dataset_inputs": json.loads(job.tags.get(DATASETS, "[]"))},
    }


def metric_json(key: str, one: Metric | Point) -> dict[str, Any]:
    return {
        "key": key,
        "value": history.number_json(one.value),
        "timestamp": one.timestamp,
        "step": one.step,
    }


def experiment_json(experiment: Experiment) -> dict[str, Any]:
    created = milliseconds(experiment.created_at)
    return {
        "experiment_id": str(experiment.id),
        "name": experiment.name,
        "artifact_location": f"mlflow-artifacts:/{experiment.id}",
        "lifecycle_stage": "deleted" if experiment.deleted else "active",
        "creation_time": created,
        "last_update_time": created,
        "tags": pairs(experiment.tags),
    }


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def tags_in(call: Call) -> dict[str, str]:
    """The field `tags`, a list of keys and values."""
    records = [tag_record(item) for item in call.objects("tags")]
    return {record.key: record.value for record in records}


def metric_record(fields: Mapping[str, Any]) -> Metric:
    """
    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    _require(fields, "key", "value", "timestamp")
    timestamp = integer(fields["timestamp"], "timestamp")
    if timestamp < 0:
        raise InvalidInput(f"Invalid value for parameter 'timestamp': `{timestamp}` is negative")
    step = fields.get("step")
    return history.metric(
        fields["key"], fields["value"], timestamp, 0 if step is None else integer(step, "step")
    )


def param_record(fields: Mapping[str, Any]) -> history.Param:
    """
    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    _require(fields, "key")
    return history.param(fields["key"], fields.get("value", ""))


def tag_record(fields: Mapping[str, Any]) -> history.Tag:
    """
    Raises:
        InvalidInput: names the field that is missing or wrong.
    """
    _require(fields, "key")
    return history.tag(fields["key"], fields.get("value", ""))


def batch_records(call: Call) -> list[Record]:
    """The metrics, parameters and tags of one log-batch.

    Raises:
        InvalidInput: names the item and the field that is missing or wrong.
    """
    records: list[Record] = []
    kinds: tuple[tuple[str, Callable[[Mapping[str, Any]], Record]], ...] = (
        ("metrics", metric_record),
        ("params", param_record),
        ("tags", tag_record),
    )
    for name, read in kinds:
        for place, item in enumerate(call.objects(name)):
            try:
                records.append(read(item))
            except InvalidInput as error:
                raise InvalidInput(f"{name}[{place}]: {error.message}") from error
    return records


def _require(fields: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if fields.get(name) is None:
            raise InvalidInput(f"Missing value for required parameter '{name}'")
