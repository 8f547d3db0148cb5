"""The code of an instance's job: the deployment's own, with the program that serves it.

Owns: the snapshot, which scripts serve models without code.
Leaves: the program itself to in_instance/, the deployment's code to those who upload it.
Always: the deployment's files are as they were uploaded; the same code and program are the same
snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.endpoints.router import collected_files
from torchyard.endpoints.spec.deployment_spec import MLFLOW, DeploymentSpec

FOLDER = ".torchyard-serving"
"""Where the program is, below the job's working folder."""
_PROGRAM = Path(__file__).parent / "in_instance"
_MLFLOW_SCRIPT, _FILE_SCRIPT = "score_mlflow.py", "score_file.py"


@dataclass(frozen=True)
class Program:
    """`code` is `snapshot:<id>`, `entry` the scoring script below `root`."""

    code: str
    root: str
    entry: str


def of(blobs: Blobs, spec: DeploymentSpec) -> Program:
    """
    Raises:
        NotFound: the deployment's code is gone.
    """
    rows: list[dict[str, Any]] = []
    # The data collector's files are written alike here and there.
    for path in (*sorted(_PROGRAM.glob("*.py")), Path(collected_files.__file__)):
        content = path.read_bytes()
        sha256 = blobs.put_bytes(content)
        rows.append({"path": f"{FOLDER}/{path.name}", "sha256": sha256, "size": len(content)})
    root, entry = FOLDER, _FILE_SCRIPT
    if spec.code is not None:
        root, entry = ".", spec.code.scoring_script
        for file in blobs.snapshot(spec.code.code.removeprefix(SNAPSHOT_PREFIX)).files:
            if not file.path.startswith(f"{FOLDER}/"):
                rows.append({key: getattr(file, key) for key in ("path", "sha256", "size", "mode")})
    elif spec.model is not None and spec.model.type == MLFLOW:
        entry = _MLFLOW_SCRIPT
    snapshot = blobs.put_snapshot({"files": rows})
    return Program(f"{SNAPSHOT_PREFIX}{snapshot.id}", root, entry)
