"""What jobs that are not submitted yet have in common: `Input`, `Output`, the document.

Owns: how values are written in a document.
Leaves: the documents of each kind to command_jobs.py and pipeline_functions.py, what is valid to
the server.
Always: `to_dict()` is what the same job's file would hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Literal = str | int | float | bool


@dataclass(frozen=True)
class Input:
    """Data for a job.

    Args:
        path: a file or folder here, `azureml:<name>:<version>`, `azureml://…`, `https://…`.
        type: uri_folder, uri_file, mltable, custom_model, mlflow_model.
        mode: ro_mount, download, direct.

    Example::

        Input(type="uri_file", path="data/train.csv")
    """

    path: str | os.PathLike[str] = ""
    type: str = "uri_folder"
    mode: str = ""
    default: Literal | None = None

    def to_dict(self) -> dict[str, Any]:
        body = {"type": self.type, "path": os.fspath(self.path), "mode": self.mode}
        return without_empty({**body, "default": self.default})


@dataclass(frozen=True)
class Output:
    """A place for what a job makes.

    Args:
        path: `azureml://datastores/<datastore>/paths/<path>`; a default place when empty.
        mode: rw_mount, upload, direct.
        name: register it as this asset when the job has completed.

    Example::

        Output(type="uri_folder", name="digits-clean")
    """

    path: str = ""
    type: str = "uri_folder"
    mode: str = ""
    name: str = ""
    version: str = ""

    def to_dict(self) -> dict[str, Any]:
        return without_empty(dict(vars(self)))


@dataclass
class JobDocument:
    """A job that is not submitted yet; `document` is its file."""

    document: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> MutableMapping[str, Any]:
        """The job's inputs, which can be set: an `Input`, a text, a number or a boolean each."""
        return _Bindings(self.document, "inputs")

    @inputs.setter
    def inputs(self, values: Mapping[str, Input | Literal | Mapping[str, Any]]) -> None:
        self.document["inputs"] = {key: as_json(value) for key, value in values.items()}

    @property
    def outputs(self) -> MutableMapping[str, Any]:
        """The job's named outputs, which can be set: an `Output` or a mapping each."""
        return _Bindings(self.document, "outputs")

    @outputs.setter
    def outputs(self, values: Mapping[str, Output | Mapping[str, Any] | None]) -> None:
        self.document["outputs"] = {key: as_json(value) or {} for key, value in values.items()}

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.document))  # type: ignore[no-any-return]

    def _repr_html_(self) -> str:
        from html import escape

        lines = "".join(
            f"<tr><th style='text-align:left'>{escape(key)}</th>"
            f"<td style='text-align:left'>{escape(_text(value))}</td></tr>"
            for key, value in self.document.items()
        )
        return f"<table>{lines}</table>"


class _Bindings(MutableMapping[str, Any]):
    """`inputs` or `outputs` of a document, as the document holds them."""

    def __init__(self, document: dict[str, Any], key: str) -> None:
        self._document, self._key = document, key

    def __getitem__(self, name: str) -> Any:
        return self._document.get(self._key, {})[name]

    def __setitem__(self, name: str, value: Any) -> None:
        plain = as_json(value)
        self._document.setdefault(self._key, {})[name] = (
            {} if plain is None and self._key == "outputs" else plain
        )

    def __delitem__(self, name: str) -> None:
        del self._document.get(self._key, {})[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document.get(self._key, {}))

    def __len__(self) -> int:
        return len(self._document.get(self._key, {}))

    def __repr__(self) -> str:
        return repr(self._document.get(self._key, {}))


def as_json(value: Any) -> Any:
    """A value of a document as its file holds it."""
    if isinstance(value, (Input, Output)):
        return value.to_dict()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def without_empty(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without None, empty texts and collections; 0 and False are kept."""
    filled = {}
    for key, value in body.items():
        if value is None or (isinstance(value, (str, Mapping, Sequence)) and not value):
            continue
        filled[key] = value
    return filled


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
