"""A model's document, and what a model may be called.

Owns: the keys of the document and their forms, names.
Leaves: finding the files at its path to the caller's `FindSource`.
Always: a name in a document can be written in a reference, `azureml:name:version`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base import fields
from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidInput, InvalidSpec, did_you_mean
from torchyard.data import documents
from torchyard.data.types import MODEL_TYPES, ONNX_TYPE

_NAME_MAX_LENGTH = 256
# The last four are accepted and ignored: a model's flavors are read from its `MLmodel`.
_KEYS = (
    "name", "version", "type", "path", "folder", "description", "tags", "properties", "stage",
    "$schema", "flavors", "datastore", "id",
)  # fmt: skip


@dataclass(frozen=True)
class ModelRequest:
    """A version to register; `run_link` and `model_id` as in `Model`, `job` unless it is that of
    the source. `is_onnx` refuses files that are not one ONNX model. `folder` is what the folder at
    `path` was called where it came from, empty for a file and where `path` says it.
    """

    name: str
    path: str
    type: str
    version: int | None = None
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    run_link: str = ""
    model_id: str = ""
    job: str = ""
    is_onnx: bool = False
    folder: str = ""


@faults.all_at_once
def read(document: Mapping[str, Any]) -> ModelRequest:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    fields.refuse_unknown(document, _KEYS, _KEYS[-4:])
    expressions.refuse(document)
    path = (
        "name a local file or folder, or "
        "`azureml://jobs/<job>/outputs/artifacts/paths/outputs/model.pt`"
    )
    type = _type(document.get("type"))
    return ModelRequest(
        name=documents.name_of(document, "a model", "model"),
        path=documents.path_of(document, "model", path),
        type="custom_model" if type == ONNX_TYPE else type,
        is_onnx=type == ONNX_TYPE,
        folder=fields.text(document, "folder"),
        version=_version(document.get("version")),
        description=str(document.get("description") or ""),
        tags=fields.texts(document, "tags"),
        properties=with_stage(fields.texts(document, "properties"), document),
    )


def check_name(name: str) -> None:
    """Accept what MLflow's clients may use: any name that fits into a URI and is a folder's name.

    Raises:
        InvalidInput: with MLflow's message where it has one.
    """
    if not name.strip():
        raise InvalidInput("Missing value for required parameter 'name'.")
    if "/" in name or ":" in name:
        raise InvalidInput(f"Invalid model name '{name}'. Names cannot contain '/' or ':'.")
    if len(name) > _NAME_MAX_LENGTH or name in (".", "..") or not name.isprintable():
        raise InvalidInput(
            f"Invalid value {name[:300]!a} for parameter 'name' supplied.",
            f"use 1 to {_NAME_MAX_LENGTH} printable characters, and neither `.` nor `..`",
        )


def with_stage(properties: dict[str, str], document: Mapping[str, Any]) -> dict[str, str]:
    stage = document.get("stage")
    return {**properties, "stage": str(stage)} if stage else properties


def _type(written: Any) -> str:
    """A model type, written in any case or in camelCase."""
    plain = str(written or "custom_model").replace("_", "").replace("-", "").lower()
    for kind in (*MODEL_TYPES, ONNX_TYPE):
        if plain == kind.replace("_", ""):
            return kind
    raise InvalidSpec(
        f"`{written}` is not a model type",
        did_you_mean(
            str(written), (*MODEL_TYPES, ONNX_TYPE), f"use one of: {', '.join(MODEL_TYPES)}"
        ),
        at=["type"],
    )


def _version(value: Any) -> int | None:
    if value is None:
        return None
    if not str(value).isdigit() or int(value) < 1:
        raise InvalidSpec(
            f"`{value}` is not a model version", "use a whole number, or leave it out",
            at=["version"],
        )  # fmt: skip
    return int(value)
