"""Datasets as Azure ML's SDK v1 defines them: one document says what to read and how.

Owns: the table of these definitions, their ids, which data one names.
Leaves: names and versions to assets.py, protocols to azureml/.
Always: the definition of an id never changes, and equal definitions have the same id.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column, Connection, String, Table, Text, delete, select

from torchyard.base.bodies import yaml_documents
from torchyard.base.db import Instant, insert_new, metadata
from torchyard.base.errors import InvalidInput, NotFound

_NAMES = uuid.UUID("6f3a7c1e-6d0b-4f5e-9a53-0d5f7a1f2b11")
_ID = re.compile(r"azureml:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_MOST_PATHS = 100
_EVERYTHING = ("/**/*", "/**", "/*")

saved_datasets = Table(
    "saved_datasets",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("id", String(36), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("dataflow", Text, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("created_at", Instant, nullable=False),
)


@dataclass(frozen=True)
class SavedDataset:
    """`kind` is `file` or `tabular`; `dataflow` is the client's JSON, which holds an MLTable."""

    workspace: str
    id: str
    kind: str
    dataflow: str
    created_at: datetime
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def mltable(self) -> str:
        """The MLTable document inside, as YAML; empty when there is none."""
        try:
            definition = json.loads(self.dataflow)
        except ValueError:
            return self.dataflow
        meta = definition.get("meta") if isinstance(definition, Mapping) else None
        return str(meta.get("RsDataflow") or "") if isinstance(meta, Mapping) else ""


def id_of(workspace: str, kind: str, dataflow: str) -> str:
    """The GUID of a definition."""
    return str(uuid.uuid5(_NAMES, f"{workspace}\n{kind}\n{dataflow}"))


def save(connection: Connection, dataset: SavedDataset) -> None:
    """Add a definition; one that exists stays as it is."""
    insert_new(connection, saved_datasets, [dict(vars(dataset))])


def get(connection: Connection, workspace: str, id: str) -> SavedDataset:
    """
    Raises:
        NotFound: no definition has the id.
    """
    query = select(saved_datasets).where(
        saved_datasets.c.workspace == workspace, saved_datasets.c.id == id.lower()
    )
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"dataset `{id[:60]}` does not exist in workspace `{workspace}`")
    return SavedDataset(**row)


def delete_all(connection: Connection, workspace: str) -> None:
    connection.execute(delete(saved_datasets).where(saved_datasets.c.workspace == workspace))


def data_of(dataset: SavedDataset) -> tuple[str, str]:
    """(path, type) of the data that a definition names, as in an input of a job.

    Raises:
        InvalidInput: it names several paths, or only some files of a folder.
    """
    paths = _paths(dataset)
    if len(paths) != 1:
        raise InvalidInput(
            f"dataset `{dataset.id}` names {len(paths)} paths, and an input takes one",
            "make a dataset of each path, or put the files into one folder",
        )
    return _data_at(paths[0])


def is_one_place(dataset: SavedDataset) -> bool:
    """Whether a definition names one file, or all files of one folder."""
    paths = _paths(dataset)
    return len(paths) == 1 and not _pattern_of(paths[0])[1]


def paths_of(dataset: SavedDataset) -> list[tuple[str, str]]:
    """The path of each file and folder that a definition names, datastores' in the short form, and
    the pattern of the files below it; empty for all.

    Raises:
        InvalidInput: it names no path, or too many.
    """
    paths = _paths(dataset)
    if not 0 < len(paths) <= _MOST_PATHS:
        raise InvalidInput(
            f"dataset `{dataset.id}` names {len(paths)} paths, and an input takes 1 to "
            f"{_MOST_PATHS}",
            "put the files into one folder",
        )
    parts = [_pattern_of(path) for path in paths]
    return [(short_path(path), pattern) for path, pattern in parts]


def id_in(path: str) -> str:
    """The id of the definition that an input's path names; empty for other paths."""
    match = _ID.fullmatch(path)
    return match[1] if match else ""


def short_path(path: str) -> str:
    """A path in a datastore as it is written in its own workspace; any other unchanged."""
    _, separator, below = path.partition("/datastores/")
    is_long = separator and path.startswith("azureml://")
    return f"azureml://datastores/{below}" if is_long else path


def _paths(dataset: SavedDataset) -> list[Mapping[str, Any]]:
    try:
        document = yaml_documents.load(dataset.mltable, "the definition") or {}
    except InvalidInput as error:
        raise InvalidInput(
            f"dataset `{dataset.id}` has a definition that is not an MLTable"
        ) from error
    paths = document.get("paths") if isinstance(document, Mapping) else None
    return [path for path in paths or [] if isinstance(path, Mapping)]


def _data_at(path: Mapping[str, Any]) -> tuple[str, str]:
    if "file" in path:
        return str(path["file"]), "uri_file"
    if "folder" in path:
        return str(path["folder"]).rstrip("/"), "uri_folder"
    folder, pattern = _pattern_of(path)
    if pattern:
        raise InvalidInput(
            f"`{folder}/{pattern}` names some files of a folder, and a table takes all or one",
            "put the files into a folder of their own",
        )
    return folder, "uri_folder"


def _pattern_of(path: Mapping[str, Any]) -> tuple[str, str]:
    """The folder of a path, and the pattern of the files below it; empty for all of them."""
    if "pattern" not in path:
        return _data_at(path)[0], ""
    text = str(path["pattern"] or "")
    for ending in _EVERYTHING:
        if text.endswith(ending) and not _is_pattern(text[: -len(ending)]):
            return text[: -len(ending)], ""
    parts = text.rstrip("/").split("/")
    fixed = next((number for number, part in enumerate(parts) if _is_pattern(part)), len(parts))
    return "/".join(parts[:fixed]), "/".join(parts[fixed:])


def _is_pattern(text: str) -> bool:
    return "*" in text or "?" in text
