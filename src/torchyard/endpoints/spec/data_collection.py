"""`data_collector` of a deployment's file: which collections are kept, where and how much of them.

Owns: `DataCollector` and `Collection`, their defaults and bounds.
Leaves: keeping requests to router/collecting.py, the data assets to records/collected_data.py.
Always: a collection's name is one folder's name; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidInput, InvalidSpec
from torchyard.base.fields import described
from torchyard.base.refs import NAME_PATTERN, parse
from torchyard.endpoints.spec import keys, settings

INPUTS, OUTPUTS, REQUEST, RESPONSE = "model_inputs", "model_outputs", "request", "response"
ROLLING = ("hour", "minute", "day", "month", "year")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z", re.ASCII)
_VERSION = re.compile(r"[a-zA-Z0-9][\w.-]{0,63}\Z", re.ASCII)
_MOST = 20


@dataclass(frozen=True)
class Collection:
    """`sampling_rate` is the share that is kept; `data_name` and `data_version` are of its data
    asset, empty for Azure's default.
    """

    name: str
    sampling_rate: float = 1.0
    data_name: str = ""
    data_version: str = ""


@dataclass(frozen=True)
class DataCollector:
    """What is kept of requests and answers; `collections` are the enabled ones."""

    collections: tuple[Collection, ...]
    rolling_rate: str = "hour"


def data_collector(document: Mapping[str, Any]) -> DataCollector | None:
    """None where nothing is to be kept.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    at = ("data_collector",)
    value = document.get(at[0])
    if value is None:
        return None
    body = keys.check(value, keys.COLLECTOR, at, "`data_collector`")
    rate = settings.share(body, "sampling_rate", at, 1.0)
    rolling = settings.word(body, "rolling_rate", at, ROLLING, "hour")
    listed = body.get("collections") or {}
    if not isinstance(listed, Mapping):
        raise InvalidSpec(
            f"`collections` must be a mapping, not {described(listed)}",
            "for example `collections: {model_inputs: {enabled: true}}`",
            at=(*at, "collections"),
        )
    if len(listed) > _MOST:
        raise InvalidSpec(
            f"{len(listed)} collections are more than {_MOST}",
            "leave some out",
            at=(*at, "collections"),
        )
    enabled = []
    for name, written in listed.items():
        collection = _collection(name, written, (*at, "collections", str(name)), rate)
        if collection is not None:
            enabled.append(collection)
    return DataCollector(tuple(enabled), rolling) if enabled else None


def _collection(
    name: Any, written: Any, at: tuple[str, ...], default_rate: float
) -> Collection | None:
    """None for one that is not enabled."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidSpec(
            f"`{str(name)[:80]}` is not a collection's name",
            "use letters, digits and `_`, beginning with a letter, such as `model_inputs`",
            at=at,
        )
    body = keys.check(written or {}, keys.COLLECTION, at, f"`{name}`")
    data_name, data_version = _data(body.get("data"), (*at, "data"))
    rate = settings.share(body, "sampling_rate", at, default_rate)
    if not settings.yes_or_no(body, "enabled", at, True):
        return None
    return Collection(name, rate, data_name, data_version)


def _data(value: Any, at: tuple[str, ...]) -> tuple[str, str]:
    """Name and version of the data asset, each empty for the default."""
    if value is None or value == "":
        return "", ""
    if isinstance(value, str):
        try:
            reference = parse(value)
        except InvalidInput as error:
            raise InvalidSpec(error.message, error.hint, at=at) from error
        if reference.label or reference.registry:
            raise InvalidSpec(
                f"`{value[:80]}` names no version of this workspace's data",
                "write `azureml:<name>:<version>`",
                at=at,
            )
        return reference.name, _checked_version(reference.version, at)
    body = keys.check(value, keys.COLLECTED_DATA, at, "`data`")
    name, version = body.get("name"), body.get("version")
    if name not in (None, "") and not (isinstance(name, str) and NAME_PATTERN.match(name)):
        raise InvalidSpec(
            f"`{str(name)[:80]}` is not a valid name for data",
            "use letters, digits, `_`, `-` and `.`",
            at=(*at, "name"),
        )
    return name or "", _checked_version("" if version is None else str(version), (*at, "version"))


def _checked_version(version: str, at: tuple[str, ...]) -> str:
    if version and not _VERSION.match(version):
        raise InvalidSpec(f"`{version[:80]}` is not a version", "for example `1`", at=at)
    return version
