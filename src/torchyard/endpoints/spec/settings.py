"""The parts of a deployment's file: requests, probes, scaling, torchyard's own.

Owns: their keys, defaults and bounds.
Leaves: the whole file to deployment_spec.py; collected data to data_collection.py.
Always: a value is whole and within its bounds; every error says where by `at`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import model_validator

from torchyard.base.documents.models import At, By, Document, Key, Truth, Whole, Word, keys, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import unknown_key

_DAY_S = 86_400
_MOST_INSTANCES = 1000
_PREFIX = "torchyard."


class RequestSettings(Document):
    request_timeout_ms: Annotated[int, Whole(1, 180_000), Key("up to 180,000")] = 5000
    max_concurrent_requests_per_instance: Annotated[int, Whole(1, 10_000), Key()] = 1
    max_queue_wait_ms: Annotated[int, Whole(0, 3_600_000), Key()] = 500


class Probe(Document):
    """Times in seconds."""

    initial_delay: Annotated[int, Whole(0, _DAY_S), Key("seconds before the first try")] = 10
    period: Annotated[int, Whole(1, _DAY_S), Key("seconds between two")] = 10
    timeout: Annotated[int, Whole(1, _DAY_S), Key("seconds until one has failed")] = 2
    success_threshold: Annotated[int, Whole(1, 1000), Key()] = 1
    failure_threshold: Annotated[int, Whole(1, 10_000), Key()] = 30


class ScaleSettings(Document):
    """`polling_interval` is in seconds."""

    type: Annotated[
        str,
        Word("default", "target_utilization"),
        Key("`default` (as many as `instance_count`) or `target_utilization`"),
    ] = "default"
    min_instances: Annotated[int, Whole(0, _MOST_INSTANCES), Key("0 lets it scale to zero")] = 1
    max_instances: Annotated[int, Whole(1, _MOST_INSTANCES), Key("or as `min_instances`")] = 1
    polling_interval: Annotated[
        int, Whole(1, _DAY_S, is_period=True), Key("seconds between two looks")
    ] = 1
    target_utilization_percentage: Annotated[int, Whole(1, 100), Key("1 to 100")] = 70

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
    max_size: Annotated[int, Whole(2, 1024), Key("rows in a batch, 2 to 1024")] = 8
    max_wait_ms: Annotated[int, Whole(0, 10_000), Key("how long the first one waits")] = 5


def _cluster(value: Any, at: At) -> str:
    if not isinstance(value, str):
        raise InvalidSpec("`cluster` must be a cluster's name", at=at)
    return value.removeprefix("azureml:")


class OwnSettings(Document):
    take_over: Annotated[
        bool, Truth(), Key("`true`: another's becomes [yours](ownership.md); not kept")
    ] = False
    cluster: Annotated[str, By(_cluster), Key("where instances run; default `local`")] = ""
    batching: Annotated[
        Batching | None, Key("`{max_size, max_wait_ms}` for models that take lists of inputs")
    ] = None
    max_queue: Annotated[int, Whole(0, 100_000), Key("requests that may wait at once")] = 100
    max_body_mb: Annotated[int, Whole(1, 4096), Key("MiB that a request's body may have")] = 100
    max_collected_mb: Annotated[
        int, Whole(1, 1 << 24), Key("MiB of collected data; older hours go")
    ] = 1024
    scale_to_zero_after_s: Annotated[
        int, Whole(1, 30 * _DAY_S), Key("seconds without a request")
    ] = 600

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
        InvalidSpec: one below `torchyard.` is no key of `torchyard:`.
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
