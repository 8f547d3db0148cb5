"""The code of the job that scores: the deployment's own, with the program that calls it.

Owns: the snapshot, what the program is told.
Leaves: the program itself to in_job/, the deployment's code to those who upload it.
Always: the deployment's files are as they were uploaded; the same code, program and settings are
the same snapshot.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.batch_endpoints.spec.deployment_spec import BatchDeploymentSpec

FOLDER = ".torchyard-batch"
"""Where the program is, below the job's working folder."""
START = "start.py"
_PROGRAM = Path(__file__).parent / "in_job"
# A folder of its own name: none of its modules hides one of the environment's.
_PACKAGE = "torchyard_batch"
_START = f"from {_PACKAGE}.main import main\n\nmain()\n"
_MLFLOW_SCRIPT = "score_mlflow.py"


def code_of(blobs: Blobs, spec: BatchDeploymentSpec, input_type: str) -> str:
    """`snapshot:<id>`.

    Raises:
        NotFound: the deployment's code is gone.
    """
    rows: list[dict[str, Any]] = []

    def add(name: str, content: bytes) -> None:
        sha256 = blobs.put_bytes(content)
        rows.append({"path": f"{FOLDER}/{name}", "sha256": sha256, "size": len(content)})

    for path in sorted(_PROGRAM.glob("*.py")):
        add(f"{_PACKAGE}/{path.name}", path.read_bytes())
    add(START, _START.encode())
    add(
        f"{_PACKAGE}/settings.json",
        json.dumps(_settings(spec, input_type), sort_keys=True).encode(),
    )
    if spec.code is not None:
        for file in blobs.snapshot(spec.code.code.removeprefix(SNAPSHOT_PREFIX)).files:
            if not file.path.startswith(f"{FOLDER}/"):
                rows.append({key: getattr(file, key) for key in ("path", "sha256", "size", "mode")})
    return f"{SNAPSHOT_PREFIX}{blobs.put_snapshot({'files': rows}).id}"


def _settings(spec: BatchDeploymentSpec, input_type: str) -> dict[str, Any]:
    """What `in_job/settings.py` reads."""
    settings, model = spec.settings, spec.model
    root, script = ".", ""
    if spec.code is not None:
        script = spec.code.scoring_script
    else:
        root, script = f"{FOLDER}/{_PACKAGE}", _MLFLOW_SCRIPT
    return {
        "root": root,
        "script": script,
        "input_type": input_type,
        "mini_batch_size": settings.mini_batch_size,
        "processes": settings.max_concurrency_per_instance,
        "appends_rows": settings.output_action == "append_row",
        "output_file_name": settings.output_file_name,
        "max_retries": settings.max_retries,
        "timeout_s": settings.timeout_s,
        "error_threshold": settings.error_threshold,
        "logging_level": settings.logging_level,
        "splits_failed_batches": spec.splits_failed_batches,
        "has_threads": "OMP_NUM_THREADS" in spec.environment_variables,
        "model_as": "" if model is None else f"{model.name or 'model'}/{model.version or '1'}",
        "model_folder": "" if model is None else model.folder,
    }
