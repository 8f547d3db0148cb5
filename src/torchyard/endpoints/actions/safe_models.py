"""Which models predict side by side without being told to.

Owns: reading from a model's files that a prediction leaves it as it is, how many processes it gets.
Leaves: starting them to Azure's server, by WORKER_COUNT; models with a scoring script to who wrote
that script.
Always: what can't be read, is large, has code of its own or may use a GPU is served by one process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torchyard.base.bodies import yaml_documents
from torchyard.base.errors import InvalidInput
from torchyard.endpoints.spec.deployment_spec import MLFLOW
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.types import EnvironmentSpec

# Their `predict` reads the fitted model, and runs on the processor.
_STATELESS = frozenset(
    f"mlflow.{flavor}"
    for flavor in ("catboost", "lightgbm", "onnx", "sklearn", "statsmodels", "xgboost")
)
_ONNX = ".onnx"
_UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, InvalidInput, RecursionError,
)  # fmt: skip
_ON_GPUS = "onnxruntime-gpu"
_MLMODEL_MOST_BYTES = 256 << 10
# Each has the model in its memory, where it may be several times as large as its files.
_MOST_PROCESSES, _SMALL_BYTES = 8, 256 << 20


def processes(model_type: str, files: Mapping[str, Path], environment: EnvironmentSpec) -> int:
    """How many predict side by side; 0 for a model that is not known to be safe for it.

    Args:
        files: the model's, by their paths in it.
        environment: of its instances.
    """
    if model_type == MLFLOW:
        is_safe = _is_stateless(files.get("MLmodel"))
    else:
        is_safe = any(path.endswith(_ONNX) for path in files)
    if not is_safe or _ON_GPUS in map(package_name, environment.packages):
        return 0
    try:
        size_bytes = sum(file.stat().st_size for file in files.values())
    except OSError:
        return 0
    return min(len(os.sched_getaffinity(0)), _MOST_PROCESSES) if size_bytes <= _SMALL_BYTES else 0


def _is_stateless(file: Path | None) -> bool:
    """Whether an MLflow model is of a library that is known, with no code of its own."""
    try:
        if file is None or file.stat().st_size > _MLMODEL_MOST_BYTES:
            return False
        body = yaml_documents.load(file.read_text(encoding="utf-8"), "the MLmodel")
        function = body["flavors"]["python_function"]
        return function["loader_module"] in _STATELESS and not function.get("code")
    except _UNREADABLE:
        return False
