"""`data_collector` of a deployment's file: which collections are kept, where and how much of them.

Owns: its keys; `DataCollector` and `Collection`, their defaults.
Leaves: keeping requests to router/collecting.py, the data assets to records/collected_data.py.
Always: a collection's name is one folder's name; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import TEXT, At, By, Share, Truth, Word
from torchyard.base.documents.faults import entries
from torchyard.base.documents.models import Document, declared, refused
from torchyard.base.errors import InvalidInput, InvalidSpec
from torchyard.base.fields import described
from torchyard.base.refs import NAME_PATTERN, parse

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


def _data_name(value: Any, at: At) -> str:
    if value not in (None, "") and not (isinstance(value, str) and NAME_PATTERN.match(value)):
        raise InvalidSpec(
            f"`{str(value)[:80]}` is not a valid name for data",
            "use letters, digits, `_`, `-` and `.`",
            at=at,
        )
    return str(value)


def _version(value: Any, at: At) -> str:
    version = str(value)
    if version and not _VERSION.match(version):
        raise InvalidSpec(f"`{version[:80]}` is not a version", "for example `1`", at=at)
    return version


class CollectedData(Document):
    name: str = declared("", "default `<endpoint>-<deployment>-<collection>`", By(_data_name))
    version: str = declared("", "default 1", By(_version))
    path: None = refused("the files are in `workspaceblobstore`, below `modelDataCollector`")


def _data(value: Any, at: At) -> CollectedData:
    """The data asset of a collection, each part of it empty for the default."""
    if value == "":
        return CollectedData()
    if not isinstance(value, str):
        return CollectedData.read(value, at)
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
    return CollectedData(name=reference.name, version=_version(reference.version, at))


class CollectionSettings(Document):
    enabled: bool = declared(True, "`true` or `false`", Truth())
    sampling_rate: float | None = declared(None, "0 to 1", Share())
    data: CollectedData = declared(
        CollectedData(),
        "the data asset: `azureml:<name>:<version>`, or see below",
        By(_data, of=CollectedData, else_=TEXT),
    )
    client_id: None = refused("the server writes with its own rights")


def _collections(value: Any, at: At) -> dict[str, CollectionSettings]:
    listed = value or {}
    if not isinstance(listed, Mapping):
        raise InvalidSpec(
            f"`collections` must be a mapping, not {described(listed)}",
            "for example `collections: {model_inputs: {enabled: true}}`",
            at=at,
        )
    if len(listed) > _MOST:
        raise InvalidSpec(
            f"{len(listed)} collections are more than {_MOST}", "leave some out", at=at
        )
    for name in listed:
        if not isinstance(name, str) or not _NAME.match(name):
            raise InvalidSpec(
                f"`{str(name)[:80]}` is not a collection's name",
                "use letters, digits and `_`, beginning with a letter, such as `model_inputs`",
                at=(*at, str(name)),
            )
    return entries(listed, at, lambda body, here: CollectionSettings.read(body or {}, here))


class CollectorSettings(Document):
    collections: dict[str, CollectionSettings] = declared(
        {},
        "`model_inputs`, `model_outputs`, `request`, `response`, more",
        By(_collections, of=CollectionSettings, is_named=True),
    )
    sampling_rate: float = declared(1.0, "0 to 1; of collections that have none", Share())
    rolling_rate: str = declared(
        "hour", "`hour` (the default), `minute`, `day`, `month`, `year`", Word(*ROLLING)
    )
    request_logging: None = refused("headers are not collected")

    @property
    def collector(self) -> DataCollector | None:
        """None where nothing is to be kept."""
        enabled = tuple(
            Collection(
                name,
                self.sampling_rate if each.sampling_rate is None else each.sampling_rate,
                each.data.name,
                each.data.version,
            )
            for name, each in self.collections.items()
            if each.enabled
        )
        return DataCollector(enabled, self.rolling_rate) if enabled else None
