"""`yard data …`: data assets."""

from __future__ import annotations

from torchyard.cli.assets import verbs
from torchyard.cli.parsing.group import noun
from torchyard.cli.terminal import tables

group = noun("data")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda data: data["name"]),
    ("VERSION", lambda data: data.get("version")),
    ("TYPE", lambda data: data.get("type")),
    ("PATH", lambda data: data.get("path") or data.get("uri")),
    ("CREATED", lambda data: tables.moment(data.get("created_at"))),
    ("DESCRIPTION", lambda data: data.get("description")),
]

verbs.add(
    group,
    verbs.Kind(
        noun="data asset",
        attribute="data",
        word="data",
        types="uri_file, uri_folder or mltable",
        example="digits",
        path_example="./digits --type uri_folder",
        columns=_COLUMNS,
    ),
)
