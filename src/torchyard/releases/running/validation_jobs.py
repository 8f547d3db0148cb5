"""The jobs that run workloads in an environment.

Owns: which workloads share a job, a job's document and code.
Leaves: the workloads to workloads/, running jobs to jobs/, their results to reports.py.
Always: the same record makes the same jobs under the same names; nothing that a person wrote is
part of a command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.errors import InvalidSpec
from torchyard.environments.selftest import in_environment
from torchyard.releases import workload_list
from torchyard.releases.records.types import Record, as_word
from torchyard.releases.workload_list import ONE_NODE, TWO_NODES, Workload
from torchyard.shared.plurals import plural

FOLDER = ".torchyard-validation"
"""Where the programs are, below the job's working folder."""
_PACKAGE = "torchyard_validation"
_PROGRAMS = Path(__file__).parents[1] / "workloads"
_EXAMPLES = Path(__file__).parents[4] / "examples"
# The self-test of curated environments asks with it, too.
_ANSWER = Path(in_environment.__file__).with_name("answer.py")
_START = f"import sys\n\nfrom {_PACKAGE}.main import main\n\nsys.exit(main())\n"
_INTERRUPTIONS = ("worker_lost", "node_lost", "node_unusable", "nodes_missing", "not_responding")
# To start, to import torch, to upload results.
_MORE_S = 600


def of_request(blobs: Blobs, request: Mapping[str, Any]) -> tuple[Workload, ...]:
    """The workloads that a request selects: torchyard's and the user's own.

    Raises:
        InvalidSpec: it names one that there is not, or its own files are not workloads.
        NotFound: its snapshot is gone.
    """
    user_workloads = workload_list.of_user(_own_names(blobs, str(request.get("workloads") or "")))
    return workload_list.selected(
        (*workload_list.WORKLOADS, *user_workloads), request.get("only") or ()
    )


def documents_of(
    blobs: Blobs,
    record: Record,
    environment: Any,
    requested: Sequence[str],
    variables: Sequence[str],
    nodes_of_compute: int,
) -> list[dict[str, Any]]:
    """The jobs' documents: those of one node share one job, those of two nodes another.

    Args:
        environment: a reference or an inline definition.
        requested: the environment's requirements, one a line.
        variables: the names of those that its label has.
        nodes_of_compute: how many it has at most; on one node two ranks take the place of two.
    """
    chosen = of_request(blobs, record.request)
    documents = []
    for nodes in (ONE_NODE, TWO_NODES):
        workloads = [workload for workload in chosen if workload.nodes == nodes]
        if workloads:
            settings = {
                "workloads": [workload.to_json() for workload in workloads],
                "requested": list(requested),
                "variables": list(variables),
            }
            code = _code(blobs, record.request, settings)
            made = _document(record, environment, workloads, nodes, nodes_of_compute)
            documents.append({**made, "code": code})
    return documents


def workloads_by_job(blobs: Blobs, record: Record) -> dict[str, list[Workload]]:
    """The workloads of each job, by the job's name."""
    jobs: dict[str, list[Workload]] = {}
    for workload in of_request(blobs, record.request):
        jobs.setdefault(_name(record, workload.nodes), []).append(workload)
    return jobs


def _name(record: Record, nodes: int) -> str:
    return f"{record.job}_{nodes}"


def _document(
    record: Record,
    environment: Any,
    workloads: Sequence[Workload],
    nodes: int,
    nodes_of_compute: int,
) -> dict[str, Any]:
    limit_s = _MORE_S + sum(workload.limit_s for workload in workloads)
    document: dict[str, Any] = {
        "name": _name(record, nodes),
        "display_name": f"validation of {record.environment}, {nodes} {plural('node', nodes)}",
        "experiment_name": f"validation-{as_word(record.environment)}",
        "parent_job_name": record.job,
        "command": f"python {FOLDER}/start.py",
        "environment": environment,
        "tags": {"environment": record.environment, "base": record.base, "validation": record.job},
        "limits": {"timeout": limit_s},
        # A job that was interrupted says nothing of the environment.
        "properties": {
            "torchyard.retry.max_attempts": "3",
            "torchyard.retry.on": ", ".join(_INTERRUPTIONS),
        },
    }
    if record.request.get("compute"):
        document["compute"] = record.request["compute"]
    if nodes == TWO_NODES:
        ranks = 1 if nodes_of_compute >= TWO_NODES else TWO_NODES
        document["resources"] = {"instance_count": TWO_NODES // ranks}
        document["distribution"] = {"type": "pytorch", "process_count_per_instance": ranks}
    return document


def _code(
    blobs: Blobs,
    request: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> str:
    """`snapshot:<id>` of the programs, what they are told, and the user's own files."""
    rows: list[dict[str, Any]] = []

    def add(name: str, content: bytes) -> None:
        sha256 = blobs.put_bytes(content)
        rows.append({"path": f"{FOLDER}/{name}", "sha256": sha256, "size": len(content)})

    for path in (*sorted(_PROGRAMS.glob("*.py")), _ANSWER):
        add(f"{_PACKAGE}/{path.name}", path.read_bytes())
    for name in workload_list.EXAMPLES:
        for path in sorted(_example(name).iterdir()):
            if path.is_file():
                add(f"{_PACKAGE}/examples/{name}/{path.name}", path.read_bytes())
    add("start.py", _START.encode())
    add(f"{_PACKAGE}/settings.json", json.dumps(settings, sort_keys=True).encode())
    if request.get("workloads"):
        snapshot = blobs.snapshot(str(request["workloads"]).removeprefix(SNAPSHOT_PREFIX))
        for file in snapshot.files:
            row = {key: getattr(file, key) for key in ("sha256", "size", "mode")}
            rows.append({"path": f"{FOLDER}/{_PACKAGE}/own/{file.path}", **row})
    return f"{SNAPSHOT_PREFIX}{blobs.put_snapshot({'files': rows}).id}"


def _example(name: str) -> Path:
    """The folder of an example's code: in the package where torchyard is installed, else in the
    checkout.
    """
    packaged = _PROGRAMS / "examples" / name
    return packaged if packaged.is_dir() else _EXAMPLES / name / "src"


def _own_names(blobs: Blobs, code: str) -> list[str]:
    """The names of the workloads in a user's folder: its Python files at the top.

    Raises:
        InvalidSpec: it has none, or one has a name that can't be a module's or is taken.
        NotFound: the snapshot is gone.
    """
    if not code:
        return []
    taken = {workload.name for workload in workload_list.WORKLOADS}
    paths = [
        PurePosixPath(file.path)
        for file in blobs.snapshot(code.removeprefix(SNAPSHOT_PREFIX)).files
    ]
    names = sorted(path.stem for path in paths if path.suffix == ".py" and len(path.parts) == 1)
    names = [name for name in names if not name.startswith("_")]
    for name in names:
        if not name.isidentifier() or name in taken:
            raise InvalidSpec(
                f"`{name}.py` can't be a workload: its name is "
                + ("taken" if name in taken else "no module's"),
                "rename it: letters, digits and underscores",
                at=["workloads"],
            )
    if not names:
        raise InvalidSpec(
            "the folder of workloads has no Python file",
            "write `<name>.py` with a function `run()` that returns a dictionary of figures",
            at=["workloads"],
        )
    return names
