"""Print the page of a rank's variables in the docs: `python tools/variables_page.py`.

Owns: how the table is displayed, what each variable holds, the public files that read it.
Leaves: which form sets which variable to worker/launch/launch_forms.py.
Always: the table is generated from the code that sets the variables.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    "MASTER_ADDR": "the address of node 0",
    "MASTER_PORT": "a port that is free on node 0 and this job's only",
    "NODE_RANK": "the node's number from 0",
    "RANK": "the process's number from 0",
    "LOCAL_RANK": "its number on the node",
    "WORLD_SIZE": "the number of processes",
    "LOCAL_WORLD_SIZE": "the number of processes of the node",
    "GROUP_RANK": "the node's number, as torchrun names it",
    "OMPI_COMM_WORLD_RANK": "the process's number from 0",
    "OMPI_COMM_WORLD_SIZE": "the number of processes",
    "OMPI_COMM_WORLD_LOCAL_RANK": "its number on the node",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "the processes of the node",
    "TF_CONFIG": "the cluster and the task",
    "AZ_BATCHAI_TASK_TYPE": "`worker` or `ps`",
}
OF_EVERY_RANK = {
    "AZ_BATCH_MASTER_NODE": "`address:port` of node 0",
    "AZ_BATCHAI_MPI_MASTER_NODE": "the address of node 0",
    "AZ_BATCHAI_JOB_MASTER_NODE_IP": "the address of node 0",
    "AZ_BATCH_IS_CURRENT_NODE_MASTER": "`true` on node 0, `false` elsewhere",
    "AZ_BATCHAI_NODE_IP": "the address of this node",
    "AZUREML_NODE_COUNT": "the number of nodes",
    "AZ_BATCH_HOST_LIST": "the addresses of all nodes, with commas between",
    "HOST_LIST": "as AZ_BATCH_HOST_LIST",
    "AZ_BATCH_NODE_LIST": "the same with semicolons",
    "AZ_BATCHAI_TASK_INDEX": "the process's number; under TensorFlow the task's index",
    "AZ_BATCHAI_PYTORCH_INIT_METHOD": "a URL for `init_process_group(init_method=…)`",
    "AZUREML_CR_NODE_RANK": "the node's number from 0",
    "AZUREML_PROCESS_NAME": "`rank_<number>`",
    "TORCHYARD_RANK": "the process's number from 0",
    "GLOO_SOCKET_IFNAME": "the interface through which the nodes found each other, unless set",
    "OMP_NUM_THREADS": "the node's cores divided by its processes, unless set",
}

_OWN = {
    "TORCHYARD_JOB": "the job's name",
    "TORCHYARD_ATTEMPT_NUMBER": "1 in the first attempt",
    "TORCHYARD_ATTEMPT": "attempt and node: processes that a rank leaves behind are found by it",
    "TORCHYARD_ERRORS": "the folder in which Pythons record how they end",
    "TORCHYARD_RELAY": "the address in the worker that takes metrics",
    "TORCHYARD_RESUMED": "the file in which `torchyard.train` notes where it goes on",
    "TORCHYARD_CHECKPOINTS": "where `torchyard.train` saves, with several nodes on one machine",
    "TORCHYARD_MIN_NODES": "of an elastic job",
    "TORCHYARD_MAX_NODES": "of an elastic job",
    "TORCHYARD_INTERCEPT": "set where `torch.save` is intercepted",
    "TORCHYARD_REHEARSAL": "set where a job is rehearsed on the CPU",
}


@dataclass(frozen=True)
class Script:
    """A public file that reads `variables`, each of which was seen in it.

    `commit` is the first ten digits where later versions of the file read others.
    """

    name: str
    repository: str
    path: str
    variables: str
    commit: str = ""


SCRIPTS = (
    Script("torch.distributed", "pytorch/pytorch", "torch/distributed/rendezvous.py",
           "RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"),
    Script("Lightning", "Lightning-AI/pytorch-lightning",
           "src/lightning/fabric/plugins/environments/lightning.py",
           "LOCAL_RANK NODE_RANK GROUP_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"),
    Script("Lightning below torchrun", "Lightning-AI/pytorch-lightning",
           "src/lightning/fabric/plugins/environments/torchelastic.py",
           "RANK LOCAL_RANK GROUP_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"),
    Script("accelerate", "huggingface/accelerate", "src/accelerate/state.py",
           "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT "
           "OMPI_COMM_WORLD_SIZE"),
    Script("accelerate on CPUs", "huggingface/accelerate", "src/accelerate/utils/environment.py",
           "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE OMPI_COMM_WORLD_RANK "
           "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE"),
    Script("Megatron-LM", "NVIDIA/Megatron-LM", "megatron/arguments.py", "RANK WORLD_SIZE"),
    Script("DeepSpeed", "deepspeedai/DeepSpeed", "deepspeed/comm/comm.py",
           "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK "
           "OMPI_COMM_WORLD_LOCAL_SIZE AZ_BATCH_MASTER_NODE AZ_BATCHAI_MPI_MASTER_NODE"),
    Script("Horovod", "horovod/horovod", "horovod/runner/common/util/env.py",
           "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE"),
    Script("TensorFlow", "tensorflow/tensorflow",
           "tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py",
           "TF_CONFIG"),
    Script("Dask example", "Azure/azureml-examples",
           "cli/jobs/single-step/dask/nyctaxi/src/startDask.py",
           "RANK LOCAL_RANK NODE_RANK MASTER_ADDR MASTER_PORT"),
    Script("Lightning example", "Azure/azureml-examples",
           "tutorials/using-pytorch-lightning/src/azureml_env_adapter.py",
           "AZ_BATCH_MASTER_NODE AZ_BATCHAI_MPI_MASTER_NODE OMPI_COMM_WORLD_RANK MASTER_PORT"),
    Script("DeepSpeed example", "Azure/azureml-examples",
           "cli/jobs/deepspeed/deepspeed-training/src/start-deepspeed.sh",
           "AZ_BATCH_HOST_LIST AZUREML_CR_NODE_RANK AZUREML_PROCESS_NAME"),
    Script("earlier DeepSpeed example", "Azure/azureml-examples",
           "cli/jobs/deepspeed/deepspeed-training/src/start-deepspeed.sh",
           "AZ_BATCH_HOST_LIST AZUREML_CR_NODE_RANK AZUREML_NODE_COUNT", "e4dc7ae5c8"),
    Script("notebook on NCCL and Gloo", "Azure/MachineLearningNotebooks",
           "how-to-use-azureml/ml-frameworks/pytorch/distributed-pytorch-with-nccl-gloo/"
           "distributed-pytorch-with-nccl-gloo.ipynb",
           "AZ_BATCHAI_PYTORCH_INIT_METHOD AZ_BATCHAI_TASK_INDEX"),
    Script("SDK v1", "azureml-core of PyPI", "azureml/history/_tracking.py",
           "AZ_BATCHAI_TASK_TYPE AZ_BATCHAI_TASK_INDEX"),
    Script("Ray on AML", "microsoft/ray-on-aml", "src/ray_on_aml/core.py",
           "AZ_BATCHAI_MPI_MASTER_NODE OMPI_COMM_WORLD_RANK"),
    Script("LightGBM benchmark", "microsoft/lightgbm-benchmark", "src/common/distributed.py",
           "AZ_BATCH_NODE_LIST AZ_BATCHAI_NODE_IP OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE",
           "0404d6ff0d"),
    Script("DiverGen (detectron2)", "aim-uofa/DiverGen", "DiverGen/launch.sh",
           "RANK AZUREML_NODE_COUNT AZ_BATCH_MASTER_NODE"),
    Script("XPaste (detectron2)", "yoctta/XPaste", "launch.sh",
           "RANK AZUREML_NODE_COUNT AZ_BATCH_MASTER_NODE"),
    Script("ViT-VAE (Lightning)", "lavinal712/ViT-VAE-Lightning", "train_a100_single_node.sh",
           "AZ_BATCHAI_TASK_INDEX NODE_RANK MASTER_ADDR MASTER_PORT"),
    Script("Batch's documents", "MicrosoftDocs/azure-docs",
           "articles/batch/batch-compute-node-environment-variables.md",
           "AZ_BATCH_MASTER_NODE AZ_BATCH_IS_CURRENT_NODE_MASTER AZ_BATCH_HOST_LIST "
           "AZ_BATCH_NODE_LIST"),
)  # fmt: skip


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
        f"| variable | {' | '.join(_FORMS.values())} | value | [read by](#read-by) |",
        f"|---|{'---|' * len(_FORMS)}---|---|",
    ]
    for name, meaning in _MEANINGS.items():
        marks = ["yes" if name in launch_forms.SET_BY_FORM[form] else "" for form in _FORMS]
        lines.append(f"| `{name}` | {' | '.join(marks)} | {meaning} | {_readers(name)} |")
    lines += [
        "",
        "Open MPI's mpirun sets further `OMPI_` and `PMIX_` variables. Values under "
        "`environment_variables` take precedence over all of them.",
        "",
        "## Of every process",
        "",
        "| variable | value | [read by](#read-by) |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {meaning} | {_readers(name)} |" for name, meaning in OF_EVERY_RANK.items()
    ]
    lines += [
        "",
        "Nodes on one machine have one address.",
        "",
        "## torchyard's own",
        "",
        "These may change unless a guide names them. The shell of the command is as bash starts "
        "it: no trap, no function, no `BASH_ENV`.",
        "",
        "| variable | value |",
        "|---|---|",
        *(f"| `{name}` | {meaning} |" for name, meaning in _OWN.items()),
        "",
        "## Read by",
        "",
        "Public files in which the variables above were seen, libraries in the versions of "
        "`acpt-pytorch-2.13-cpu`, and Azure's documents that name them. Gloo and OpenMP read "
        "their own; for other empty cells no public file was found.",
        "",
        "| name | file | variables |",
        "|---|---|---|",
    ]
    for script in SCRIPTS:
        version = f", at {script.commit}" if script.commit else ""
        read = ", ".join(f"`{name}`" for name in script.variables.split())
        lines.append(f"| {script.name} | {script.repository}: `{script.path}`{version} | {read} |")
    return "\n".join(lines) + "\n"


def _readers(name: str) -> str:
    return ", ".join(script.name for script in SCRIPTS if name in script.variables.split())


if __name__ == "__main__":
    print(page(), end="")
