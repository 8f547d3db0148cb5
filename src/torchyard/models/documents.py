"""A model's document, and what a model may be called.

Owns: the keys of the document and their forms, names.
Leaves: finding the files at its path to the caller's `FindSource`.
Always: a name in a document can be written in a reference, `azureml:name:version`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By, Key, Text
from torchyard.base.documents.models import declared, rule
from torchyard.base.errors import InvalidInput, InvalidSpec, did_you_mean
from torchyard.data.documents import AssetFile
from torchyard.data.types import MODEL_TYPES, ONNX_TYPE

_NAME_MAX_LENGTH = 256


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


_VERSION = re.compile(r"0{0,8}[1-9][0-9]{0,8}\Z")


def _type(value: Any, at: At) -> str:
    """A model type, written in any case or in camelCase."""
    plain = str(value or "custom_model").replace("_", "").replace("-", "").lower()
    for kind in (*MODEL_TYPES, ONNX_TYPE):
        if plain == kind.replace("_", ""):
            return kind
    raise InvalidSpec(
        f"`{value}` is not a model type",
        did_you_mean(
            str(value), (*MODEL_TYPES, ONNX_TYPE), f"use one of: {', '.join(MODEL_TYPES)}"
        ),
        at=at,
    )


def _version(value: Any, at: At) -> int:
    if not _VERSION.match(str(value)):
        raise InvalidSpec(
            f"`{str(value)[:80]}` is not a model version",
            "use a whole number of up to nine digits, or leave it out",
            at=at,
        )
    return int(value)


_FLAVORS = Key("a model's flavors are read from its `MLmodel`", "satisfied")


class ModelFile(AssetFile):
    subject: ClassVar[str] = "the model's document"
    noun: ClassVar[str] = "a model"
    thing: ClassVar[str] = "model"

    path: Any = declared(None, "a file or folder here, or what a job wrote")
    type: str = declared(
        "custom_model", "`custom_model` (the default), `mlflow_model`, `triton_model`", By(_type)
    )
    version: Any = declared(None, "the next one when left out", By(_version))
    folder: str = declared("", "what a folder was called; the client writes it", Text())
    stage: Any = declared(None, "kept as the property `stage`")
    flavors: Any = declared(None, _FLAVORS)
    datastore: Any = declared(None, _FLAVORS)
    id: Any = declared(None, _FLAVORS)

    @rule("path")
    def _path(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidSpec(
                "the model has no `path`",
                "name a local file or folder, or "
                "`azureml://jobs/<job>/outputs/artifacts/paths/outputs/model.pt`",
                at=["path"],
            )


def read(document: Mapping[str, Any]) -> ModelRequest:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    file = ModelFile.read(document)
    return ModelRequest(
        name=file.name,
        path=file.path,
        type="custom_model" if file.type == ONNX_TYPE else file.type,
        is_onnx=file.type == ONNX_TYPE,
        folder=file.folder,
        version=file.version,
        description=file.description,
        tags=file.tags,
        properties=with_stage(file.properties, document),
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
