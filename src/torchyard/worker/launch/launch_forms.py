"""The variables of a launcher, by form of launch.

Owns: which of them each form sets, and their values.
Leaves: every other variable of a rank to variables.py, Open MPI's own to mpirun, TF_CONFIG to
tensorflow_tasks.py, the page in the docs to tools/variables_page.py.
Always: a job without `distribution` on one node has none of them, as on Azure. Lightning,
accelerate and Hugging Face's Trainer take one of them for a launcher that has started every
process, and would wait for the others or train with one.
"""

from __future__ import annotations

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.launch.launch_ports import MPI, TENSORFLOW
from torchyard.worker.preflight.rendezvous import Rendezvous

PYTORCH = "pytorch"
_MASTER = ("MASTER_ADDR", "MASTER_PORT")
_NODE = ("NODE_RANK",)
_PROCESS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
_OPEN_MPI = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
_TENSORFLOW = ("TF_CONFIG", "AZ_BATCHAI_TASK_TYPE")
LAUNCHER_VARIABLES = (*_MASTER, *_NODE, *_PROCESS, *_OPEN_MPI, *_TENSORFLOW)

SINGLE_NODE, PER_NODE = "single_node", "per_node"
SET_BY_FORM: dict[str, tuple[str, ...]] = {
    SINGLE_NODE: (),
    PER_NODE: (*_MASTER, *_NODE),
    PYTORCH: (*_MASTER, *_NODE, *_PROCESS),
    MPI: (*_MASTER, *_OPEN_MPI),
    TENSORFLOW: _TENSORFLOW,
}
"""The variables that each form of launch sets, by form; none sets another of LAUNCHER_VARIABLES."""


def form_of(plan: LaunchPlan) -> str:
    """The key of SET_BY_FORM."""
    if plan.distribution:
        return plan.distribution
    # A node count that changes must not change what the command finds.
    most_nodes = int(plan.variables.get("TORCHYARD_MAX_NODES") or plan.node_count)
    return PER_NODE if most_nodes > 1 else SINGLE_NODE


def variables(
    plan: LaunchPlan, node: int, local_rank: int, rendezvous: Rendezvous
) -> dict[str, str]:
    """The launcher's variables of one rank; under TensorFlow also its AZ_BATCHAI_TASK_INDEX."""
    form = form_of(plan)
    if form == TENSORFLOW:
        from torchyard.worker.launch import tensorflow_tasks  # Only for TensorFlow jobs.

        return tensorflow_tasks.variables(
            plan, node, local_rank, rendezvous.hosts, rendezvous.ports
        )
    rank = str(node * plan.processes_per_node + local_rank)
    values = {
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.port),
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
        "RANK": rank,
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(plan.world_size),
        "LOCAL_WORLD_SIZE": str(plan.processes_per_node),
        # As set by mpirun, which a job of one process runs without.
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": str(plan.world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(plan.processes_per_node),
    }
    return {name: values[name] for name in SET_BY_FORM[form]}
