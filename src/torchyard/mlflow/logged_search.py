"""Searching logged models.

Owns: MLflow's filters and orders of logged models, with the data sets that metrics are of.
Leaves: the language itself to search.py.
Always: a metric is compared as it was last logged, of each run and data set on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call
from torchyard.mlflow.registry import logged_root
from torchyard.mlflow.translate import milliseconds
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
    """Which metrics are meant: those of a data set; an empty text means any."""

    name: str = ""
    digest: str = ""

    def has(self, metric: LoggedMetric) -> bool:
        return (not self.name or metric.dataset_name == self.name) and (
            not self.digest or metric.dataset_digest == self.digest
        )


@dataclass(frozen=True)
class Search:
    """What a client asks for; `orders` goes with the data set of each."""

    conditions: Sequence[search.Condition]
    datasets: Sequence[Dataset]
    orders: Sequence[tuple[search.Order, Dataset]]

    def of(self, models: Sequence[LoggedModel], metrics: Metrics) -> list[LoggedModel]:
        """Those that fit, as ordered; `models` comes newest first."""
        found = [model for model in models if self._fits(model, metrics[model.id])]
        # The places stand for the orders, so that each is looked up with its own data set.
        places = [
            search.Order(order.kind, str(place), order.descending)
            for place, (order, _) in enumerate(self.orders)
        ]

        def lookup(model: LoggedModel, kind: str, key: str) -> Any:
            order, dataset = self.orders[int(key)]
            if kind != "metric":
                return _value(model, kind, order.key)
            of_it = [one for one in metrics[model.id] if one.key == order.key and dataset.has(one)]
            newest = max(of_it, key=lambda one: (one.timestamp, one.step), default=None)
            return None if newest is None else newest.value

        search.arrange(found, places, lookup)
        return found

    def _fits(self, model: LoggedModel, metrics: Sequence[LoggedMetric]) -> bool:
        asked = [
            one
            for one in metrics
            if not self.datasets or any(dataset.has(one) for dataset in self.datasets)
        ]
        if self.datasets and not asked:
            return False
        for condition in self.conditions:
            if condition.kind == "metric":
                values: list[Any] = [one.value for one in asked if one.key == condition.key]
            else:
                values = [_value(model, condition.kind, condition.key)]
            if not any(search.holds(condition, value) for value in values):
                return False
        return True


def read(call: Call) -> Search:
    """
    Raises:
        InvalidInput: names what is not understood.
    """
    conditions = search.read_filter(call.text("filter", default=""), _LANGUAGE)
    datasets = [_dataset(call, item) for item in call.objects("datasets")]
    if not all(dataset.name for dataset in datasets):
        raise InvalidInput("`dataset_name` in the `datasets` clause must be specified.")
    return Search(conditions, datasets, [_order(call, item) for item in call.objects("order_by")])


def _order(call: Call, item: Mapping[str, Any]) -> tuple[search.Order, Dataset]:
    name = Call(call.workspace, call.identity, item).text("field_name")
    # Left out, it is true; a client of MLflow leaves it out only then.
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


def _value(model: LoggedModel, kind: str, key: str) -> Any:
    if kind == "param":
        return model.params.get(key)
    if kind == "tag":
        return model.tags.get(key)
    if key in _CREATED:
        return milliseconds(model.created_at)
    if key in _UPDATED:
        return milliseconds(model.updated_at)
    texts = {
        "name": model.name,
        "model_id": model.id,
        "model_type": model.type,
        "status": model.status,
        "source_run_id": model.run,
    }
    return logged_root(model) if key == "artifact_location" else texts[key]
