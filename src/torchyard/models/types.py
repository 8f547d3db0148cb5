"""The types of this package."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class ModelFile:
    """One file of a model; `path` is relative to the model."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model.

    Dimensions are sizes, or the names of dynamic ones, "" for one without name; `shape` is None for
    a column of a table, and where it is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None = None
    required: bool = True


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives; `format` is `onnx` or `mlflow`."""

    format: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Model:
    """One version. `job` is the job that made it, empty for an upload; `folder` is its path in the
    default datastore. `single`: the model is one file, not a folder with one.

    `model_id` is the logged model that it was made of, and `run_link` the link that MLflow's
    clients send for a run of another server. A version of remote files has only its `source`.
    `environment` is that of `job` as a job file names it: a reference with its version, or an
    inline definition, without secrets; empty where no job made it.
    """

    workspace: str
    name: str
    version: int
    type: str
    source: str
    folder: str
    job: str
    created_at: datetime
    owner: str
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    files: tuple[ModelFile, ...] = ()
    single: bool = False
    archived: bool = False
    updated_at: datetime | None = None
    run_link: str = ""
    model_id: str = ""
    environment: str | dict[str, Any] = ""
    signature: Signature | None = None

    @property
    def stage(self) -> str:
        return self.properties.get("stage", "")


@dataclass(frozen=True)
class Registered:
    """A name and what all its versions share; `last_version` is the newest number, 0 for none.

    `aliases` are names of versions: {alias: version}.
    """

    workspace: str
    name: str
    created_at: datetime
    updated_at: datetime
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, int] = field(default_factory=dict)
    last_version: int = 0


@dataclass(frozen=True)
class LoggedModel:
    """A model that a run logged, before anyone registers it.

    `folder` is its path in the artifact store: among the files of `run`, if it has one.
    `status` is one of `logged.STATUSES`.
    """

    id: str
    workspace: str
    experiment_id: int
    name: str
    run: str
    folder: str
    type: str
    status: str
    created_at: datetime
    updated_at: datetime
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    deleted: bool = False


@dataclass(frozen=True)
class LoggedMetric:
    """The newest point of a metric of a logged model; one for each run and data set."""

    model_id: str
    run: str
    key: str
    value: float
    timestamp: int
    step: int
    dataset_name: str = ""
    dataset_digest: str = ""


@dataclass(frozen=True)
class RunModel:
    """A logged model that a run used or made; `kind` is `input` or `output`."""

    run: str
    kind: str
    model_id: str
    step: int = 0
