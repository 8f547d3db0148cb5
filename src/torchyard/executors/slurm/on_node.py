"""What Slurm runs on each node: it tells the bootstrap program which node this is.

Owns: reading Slurm's variables, hiding them from what follows.
Leaves: the rest to executors/bootstrap_program.py, which runs in this process.
Always: sent as text; standard library only; any Python 3 can read it, so that one too old is told
of by name.

Libraries that find Slurm's variables believe that Slurm started the ranks (Open MPI starts its
daemons by srun, Lightning counts its tasks), so ranks don't see them.
"""

import json
import os
import sys
from collections.abc import Mapping

_KEPT = ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION")
_FOREIGN = ("SLURM", "SRUN", "SBATCH", "PMI", "PMIX")
_KINDS = (
    ("CUDA_VISIBLE_DEVICES", "nvidia"),
    ("ROCR_VISIBLE_DEVICES", "amd"),
    ("HIP_VISIBLE_DEVICES", "amd"),
)


def devices(environ: "Mapping[str, str]") -> "list[dict[str, object]]":
    """The GPUs that Slurm gave this node."""
    for variable, kind in _KINDS:
        names = [name for name in environ.get(variable, "").split(",") if name.strip()]
        if names and "NoDevFiles" not in names:
            return [_device(kind, position, name) for position, name in enumerate(names)]
    numbers = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS") or ""
    return [_device("nvidia", 0, number) for number in numbers.split(",") if number.isdigit()]


def _device(kind: str, position: int, name: str) -> "dict[str, object]":
    name = name.strip()
    # A UUID, as of a part of a GPU, says nothing of the index.
    is_index = name.isdigit()
    return {
        "kind": kind,
        "index": int(name) if is_index else position,
        "uuid": "" if is_index else name,
    }


def main() -> None:
    if sys.version_info < (3, 9):  # noqa: UP036
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit(
            "error: its Python is "
            + version
            + ", and the worker needs 3.9 or later; name another in the "
            "cluster's settings: `torchyard: {python: /path/to/python3}`"
        )
    program = sys.argv[1]
    node = os.environ["SLURM_PROCID"]
    gpus = devices(os.environ)
    for name in list(os.environ):
        if name.split("_")[0] in _FOREIGN and name not in _KEPT:
            del os.environ[name]
    sys.argv = ["bootstrap_program.py", "--node", node, "--die-with-parent"]
    if gpus:
        sys.argv += ["--devices", json.dumps(gpus)]
    exec(compile(program, "bootstrap_program.py", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
