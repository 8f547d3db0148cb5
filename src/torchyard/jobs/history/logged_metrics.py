"""What runs measure of logged models.

Owns: from a point of a run's history to one of the model that it was measured of.
Leaves: keeping it to models/.
Always: it is kept in the transaction that stores the run's own point, and in the run's workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from torchyard.jobs.history.history_records import ModelMetric
from torchyard.jobs.records import store
from torchyard.models import logged
from torchyard.models.types import LoggedMetric


def add(connection: Connection, job_id: int, measured: Sequence[ModelMetric]) -> None:
    """Keep the newest of each metric; `History` calls this."""
    job = store.job_by_id(connection, job_id)
    points = [
        LoggedMetric(
            model_id=metric.model_id,
            run=job.name,
            key=metric.metric.key,
            value=metric.metric.value,
            timestamp=metric.metric.timestamp,
            step=metric.metric.step,
            dataset_name=metric.dataset_name,
            dataset_digest=metric.dataset_digest,
        )
        for metric in measured
    ]
    logged.record_metrics(connection, job.workspace, points)
