"""Searching logged models.

Owns: MLflow's filters and orders of logged models, with the datasets that metrics belong to.
Leaves: the language itself to search.py.
Always: a metric is compared by its last value, separately for each run and dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call
from torchyard.mlflow.model_json import logged_model_uri
from torchyard.mlflow.translate import to_milliseconds
from torchyard.models.types import LoggedMetric, LoggedModel

Metrics = Mapping[str, Sequence[LoggedMetric]]

_CREATED = ("creation_timestamp", "creation_time", "creation_timestamp_ms")
_UPDATED = ("last_updated_timestamp", "last_updated_timestamp_ms")
_LANGUAGE = search.Language(
    frozenset({"name", "model_id", "model_type", "status", "source_run_id", "artifact_location"}),
    frozenset({*_CREATED, *_UPDATED}),
    frozenset({"attribute", "metric", "param", "tag"}),
)


@dataclass(frozen=True)
class Dataset:
    """The dataset whose metrics are compared; an empty field stands for any."""

    name: str = ""
    digest: str = ""

    def has(self, metric: LoggedMetric) -> bool:
        return (not self.name or metric.dataset_name == self.name) and (
            not self.digest or metric.dataset_digest == self.digest
        )


@dataclass(frozen=True)
class Search:
    """A parsed search; each order has the dataset whose metrics it sorts by."""

    conditions: Sequence[search.Condition]
    datasets: Sequence[Dataset]
    orders: Sequence[tuple[search.Order, Dataset]]

    def run(self, models: Sequence[LoggedModel], metrics: Metrics) -> list[LoggedModel]:
        """The models that match, sorted; `models` comes newest first."""
        matches = [model for model in models if self._matches(model, metrics[model.id])]
        # An order's index stands for its key, so that its dataset can be looked up.
        indexed_orders = [
            search.Order(order.kind, str(index), order.descending)
            for index, (order, _) in enumerate(self.orders)
        ]

        def lookup(model: LoggedModel, kind: str, key: str) -> Any:
            order, dataset = self.orders[int(key)]
            if kind != "metric":
                return _attribute(model, kind, order.key)
            logged_metrics = [
                metric
                for metric in metrics[model.id]
                if metric.key == order.key and dataset.has(metric)
            ]
            newest = max(
                logged_metrics, key=lambda metric: (metric.timestamp, metric.step), default=None
            )
            return None if newest is None else newest.value

        search.sort_items(matches, indexed_orders, lookup)
        return matches

    def _matches(self, model: LoggedModel, metrics: Sequence[LoggedMetric]) -> bool:
        compared_metrics = [
            metric
            for metric in metrics
            if not self.datasets or any(dataset.has(metric) for dataset in self.datasets)
        ]
        if self.datasets and not compared_metrics:
            return False
        for condition in self.conditions:
            if condition.kind == "metric":
                values: list[Any] = [
                    metric.value for metric in compared_metrics if metric.key == condition.key
                ]
            else:
                values = [_attribute(model, condition.kind, condition.key)]
            if not any(search.matches(condition, value) for value in values):
                return False
        return True


def parse_search(call: Call) -> Search:
    """
    Raises:
        InvalidInput: names the part that can't be parsed.
    """
    conditions = search.parse_filter(call.text("filter", default=""), _LANGUAGE)
    datasets = [_dataset(call, item) for item in call.objects("datasets")]
    if not all(dataset.name for dataset in datasets):
        raise InvalidInput("`dataset_name` in the `datasets` clause must be specified.")
    return Search(conditions, datasets, [_order(call, item) for item in call.objects("order_by")])


def _order(call: Call, item: Mapping[str, Any]) -> tuple[search.Order, Dataset]:
    name = Call(call.workspace, call.identity, item).text("field_name")
    # The default is true; MLflow's client leaves the field out only then.
    descending = item.get("ascending", True) is False
    kind, separator, key = name.partition(".")
    if not separator:
        if name not in _LANGUAGE.text_attributes | _LANGUAGE.number_attributes:
            raise InvalidInput(f"Invalid order by field name: {name}")
        return search.Order("attribute", name, descending), Dataset()
    if kind not in ("metrics", "metric"):
        raise InvalidInput(f"Invalid order by field name: {name}. Only metrics are supported.")
    return search.Order("metric", key.strip('`"'), descending), _dataset(call, item)


def _dataset(call: Call, item: Mapping[str, Any]) -> Dataset:
    fields = Call(call.workspace, call.identity, item)
    return Dataset(
        fields.text("dataset_name", default=""), fields.text("dataset_digest", default="")
    )


def _attribute(model: LoggedModel, kind: str, key: str) -> Any:
    if kind == "param":
        return model.params.get(key)
    if kind == "tag":
        return model.tags.get(key)
    if key in _CREATED:
        return to_milliseconds(model.created_at)
    if key in _UPDATED:
        return to_milliseconds(model.updated_at)
    texts = {
        "name": model.name,
        "model_id": model.id,
        "model_type": model.type,
        "status": model.status,
        "source_run_id": model.run,
    }
    return logged_model_uri(model) if key == "artifact_location" else texts[key]
