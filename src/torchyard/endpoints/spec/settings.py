"""The parts of a deployment's file: requests, probes, scaling, torchyard's own.

Owns: their keys, defaults and bounds.
Leaves: the whole file to deployment_spec.py; collected data to data_collection.py.
Always: a value is whole and within its bounds; every error says where by `at`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from torchyard.base.documents.checks import At, By, Truth, Whole, Word
from torchyard.base.documents.models import Document, declared, keys, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import unknown_key

_DAY_S = 86_400
_MOST_INSTANCES = 1000
MOST_AT_ONCE = 10_000
"""Requests in an instance."""
_PREFIX = "torchyard."


class RequestSettings(Document):
    request_timeout_ms: int = declared(5000, "up to 180,000", Whole(1, 180_000))
    max_concurrent_requests_per_instance: int = declared(
        1, "where nothing is written, one for each process of an instance", Whole(1, MOST_AT_ONCE)
    )
    max_queue_wait_ms: int = declared(500, check=Whole(0, 3_600_000))


class Probe(Document):
    """Times in seconds."""

    initial_delay: int = declared(10, "seconds before the first try", Whole(0, _DAY_S))
    period: int = declared(10, "seconds between two", Whole(1, _DAY_S))
    timeout: int = declared(2, "seconds until one has failed", Whole(1, _DAY_S))
    success_threshold: int = declared(1, check=Whole(1, 1000))
    failure_threshold: int = declared(30, check=Whole(1, 10_000))


class ScaleSettings(Document):
    """`polling_interval` is in seconds."""

    type: str = declared(
        "default",
        "`default` (as many as `instance_count`) or `target_utilization`",
        Word("default", "target_utilization"),
    )
    min_instances: int = declared(1, "0 lets it scale to zero", Whole(0, _MOST_INSTANCES))
    max_instances: int = declared(1, "or as `min_instances`", Whole(1, _MOST_INSTANCES))
    polling_interval: int = declared(
        1, "seconds between two looks", Whole(1, _DAY_S, is_period=True)
    )
    target_utilization_percentage: int = declared(70, "1 to 100", Whole(1, 100))

    @property
    def is_automatic(self) -> bool:
        return self.type == "target_utilization"

    @model_validator(mode="after")
    def _as_many_as_least(self) -> ScaleSettings:
        if "max_instances" in self.model_fields_set or self.min_instances <= 1:
            return self
        return self.model_copy(update={"max_instances": self.min_instances})

    @rule("min_instances", "max_instances")
    def _order(self) -> None:
        if self.max_instances < self.min_instances:
            raise InvalidSpec(
                f"`max_instances` is {self.max_instances}, and `min_instances` is "
                f"{self.min_instances}",
                f"write {self.min_instances} or more",
                at=("max_instances",),
            )


class Batching(Document):
    max_size: int = declared(8, "rows in a batch, 2 to 1024", Whole(2, 1024))
    max_wait_ms: int = declared(5, "how long the first one waits", Whole(0, 10_000))


def _cluster(value: Any, at: At) -> str:
    if not isinstance(value, str):
        raise InvalidSpec("`cluster` must be a cluster's name", at=at)
    return value.removeprefix("azureml:")


class OwnSettings(Document):
    take_over: bool = declared(
        False, "`true`: another's becomes [yours](ownership.md); not kept", Truth()
    )
    cluster: str = declared("", "where instances run; default `local`", By(_cluster))
    batching: Batching | None = declared(
        None, "`{max_size, max_wait_ms}` for models that take lists of inputs"
    )
    max_queue: int = declared(100, "requests that may wait at once", Whole(0, 100_000))
    max_body_mb: int = declared(100, "MiB that a request's body may have", Whole(1, 4096))
    max_collected_mb: int = declared(
        1024, "MiB of collected data; older hours go", Whole(1, 1 << 24)
    )
    scale_to_zero_after_s: int = declared(600, "seconds without a request", Whole(1, 30 * _DAY_S))

    @property
    def max_body_bytes(self) -> int:
        return self.max_body_mb << 20

    @property
    def max_collected_bytes(self) -> int:
        return self.max_collected_mb << 20


def with_own_texts(body: Mapping[str, Any]) -> dict[str, Any]:
    """The file with what its tags and properties say below `torchyard.` among its own keys, as
    Azure's clients write it: the tag `torchyard.max_queue: "20"`.
    """
    written = {**_from_texts(body, "properties"), **_from_texts(body, "tags")}
    own = body.get("torchyard")
    if not written or not (own is None or isinstance(own, Mapping)):
        return dict(body)
    return {**body, "torchyard": {**written, **(own or {})}}


def refuse_unknown_texts(texts: Mapping[str, str], key: str) -> None:
    """
    Args:
        key: `tags` or `properties`.

    Raises:
        InvalidSpec: a name below `torchyard.` that is not a key of `torchyard:`.
    """
    for name in texts:
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in keys(OwnSettings):
            known = [f"{_PREFIX}{each}" for each in keys(OwnSettings)]
            raise unknown_key(name, known, (key,))


def _from_texts(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    texts = body.get(key)
    values: dict[str, Any] = {}
    for written, value in texts.items() if isinstance(texts, Mapping) else ():
        name = str(written).removeprefix(_PREFIX)
        if str(written).startswith(_PREFIX) and name in keys(OwnSettings):
            try:
                values[name] = json.loads(value) if isinstance(value, str) else value
            except (ValueError, RecursionError):
                values[name] = value
    return values
