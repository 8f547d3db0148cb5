"""Print the page of a rank's variables in the docs: `python tools/variables_page.py`.

Owns: how the table is displayed, what each launcher's variable holds and who reads it.
Leaves: which form sets which variable to worker/launch/launch_forms.py.
Always: the table is generated from the code that sets the variables.
"""

from __future__ import annotations

from torchyard.worker.launch import launch_forms
from torchyard.worker.launch.launch_ports import MPI, TENSORFLOW

_FORMS = {
    launch_forms.SINGLE_NODE: "none, one node",
    launch_forms.PER_NODE: "none, several nodes",
    launch_forms.PYTORCH: "`pytorch`",
    MPI: "`mpi`",
    TENSORFLOW: "`tensorflow`",
}
_MEANINGS = {
    "MASTER_ADDR": ("the address of node 0", "torch.distributed, torchrun, DeepSpeed"),
    "MASTER_PORT": ("a port that is free on node 0 and this job's only", "as MASTER_ADDR"),
    "NODE_RANK": ("the node's number from 0", "`--node_rank` of torchrun, Megatron, detectron2"),
    "RANK": ("the process's number from 0", "torch.distributed"),
    "LOCAL_RANK": ("its number on the node", "Lightning, accelerate, Hugging Face's Trainer"),
    "WORLD_SIZE": ("the number of processes", "torch.distributed"),
    "LOCAL_WORLD_SIZE": ("the number of processes of the node", "torch.distributed"),
    "GROUP_RANK": ("the node's number, as torchrun names it", "Lightning, torchrun's scripts"),
    "OMPI_COMM_WORLD_RANK": ("the process's number from 0", "DeepSpeed, Horovod, mpi4py"),
    "OMPI_COMM_WORLD_SIZE": ("the number of processes", "as OMPI_COMM_WORLD_RANK"),
    "OMPI_COMM_WORLD_LOCAL_RANK": ("its number on the node", "as OMPI_COMM_WORLD_RANK"),
    "OMPI_COMM_WORLD_LOCAL_SIZE": ("the processes of the node", "as OMPI_COMM_WORLD_RANK"),
    "TF_CONFIG": ("the cluster and the task", "tf.distribute, tf.estimator"),
    "AZ_BATCHAI_TASK_TYPE": ("`worker` or `ps`", "scripts for SDK v1"),
}
_OF_EVERY_RANK = (
    ("AZ_BATCH_MASTER_NODE", "`address:port` of node 0"),
    ("AZ_BATCHAI_MPI_MASTER_NODE", "the address of node 0"),
    ("AZ_BATCH_HOST_LIST, HOST_LIST", "the addresses of all nodes, with commas between"),
    ("AZ_BATCHAI_TASK_INDEX", "the process's number; under TensorFlow the task's index"),
    ("AZ_BATCHAI_PYTORCH_INIT_METHOD", "a URL for `init_process_group(init_method=…)`"),
    ("AZUREML_CR_NODE_RANK", "the node's number from 0"),
    ("AZUREML_PROCESS_NAME", "`rank_<number>`"),
    ("TORCHYARD_RANK", "the process's number from 0"),
    ("GLOO_SOCKET_IFNAME", "the interface through which the nodes found each other, unless set"),
    ("OMP_NUM_THREADS", "the node's cores divided by its processes, unless set"),
)


def page() -> str:
    """The page of variables."""
    lines = [
        "# Variables of a launch",
        "",
        "Generated from `src/torchyard/worker/launch/launch_forms.py` by `python "
        "tools/variables_page.py`; edit the code, not this page.",
        "",
        "## By `distribution`",
        "",
        "A job without `distribution` on one node has no launcher's variable, as on Azure: "
        "Lightning, accelerate and Hugging Face's Trainer start their own processes then. A "
        "launcher such as torchrun sets the others in the processes that it starts.",
        "",
        f"| variable | {' | '.join(_FORMS.values())} | value | read by |",
        f"|---|{'---|' * len(_FORMS)}---|---|",
    ]
    for name, (meaning, readers) in _MEANINGS.items():
        marks = ["yes" if name in launch_forms.SET_BY_FORM[form] else "" for form in _FORMS]
        lines.append(f"| `{name}` | {' | '.join(marks)} | {meaning} | {readers} |")
    lines += [
        "",
        "Open MPI's mpirun sets further `OMPI_` and `PMIX_` variables. Values under "
        "`environment_variables` take precedence over all of them.",
        "",
        "## Of every process",
        "",
        "| variable | value |",
        "|---|---|",
    ]
    for names, meaning in _OF_EVERY_RANK:
        cell = ", ".join(f"`{name}`" for name in names.split(", "))
        lines.append(f"| {cell} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
