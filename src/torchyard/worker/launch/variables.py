"""The environment of a rank.

Owns: every variable that only a node knows, and the order in which sources win.
Leaves: what the server knows (run ids, workspace) to the plan's `variables`.
Always: the user's own variables win; nothing of the worker's own settings reaches a rank.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files import rehearsal
from torchyard.worker.files.node_folders import Layout
from torchyard.worker.launch.launching import MPI, TENSORFLOW
from torchyard.worker.launch.surroundings import Surroundings
from torchyard.worker.preflight.rendezvous import Rendezvous
from torchyard.worker.relay import sdk_v1_addresses
from torchyard.worker.system import devices
from torchyard.worker.system.processes import MARK_VARIABLE, mark

# With PYTHONDONTWRITEBYTECODE, `import torch` costs three times the CPU; the others name the
# platform's Python, not the job's.
_NOT_PASSED_ON = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "_")
_PLATFORM_PREFIX = "TORCHYARD_"


def of_node(
    base: Mapping[str, str], plan: LaunchPlan, node: int, found: Surroundings
) -> dict[str, str]:
    """What all ranks of a node share, the user's variables left out."""
    passed_on = {
        name: value
        for name, value in base.items()
        if name not in _NOT_PASSED_ON and not name.startswith(_PLATFORM_PREFIX)
    }
    if plan.image:
        from torchyard.worker.launch import image_root  # Few jobs run in an image.

        passed_on = image_root.variables(plan.image, passed_on)
    return {
        **_defaults(plan, found),
        **passed_on,
        "AZUREML_CR_COMPUTE_CONTEXT": _compute_context(plan, node, found),
        **plan.variables,
        **_platform(plan, node, found),
        **sdk_v1_addresses.variables(plan, found.relay_url),
        **_no_proxy(passed_on),
        **_distributed(plan, node, found.meeting),
        **_data(found.layout),
        **_python(passed_on, found),
    }


def of_rank(
    shared: Mapping[str, str], plan: LaunchPlan, node: int, local_rank: int, meeting: Rendezvous
) -> dict[str, str]:
    """All variables of one rank."""
    rank = node * plan.processes_per_node + local_rank
    return {
        **shared,
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "AZ_BATCHAI_TASK_INDEX": str(rank),
        "AZUREML_PROCESS_NAME": f"rank_{rank}",
        **_of_launcher(plan, node, local_rank, meeting),
        **plan.environment_variables,
        **devices.variables(plan, node),
        # Last, and no one's to change: it is how a lost process is found again.
        MARK_VARIABLE: mark(plan.attempt_id, node),
        **rehearsal.variables(plan),
    }


def with_hooks(variables: Mapping[str, str], hooks: Path) -> dict[str, str]:
    """The same for the Pythons of an image, which find the hooks by PYTHONPATH."""
    path = variables.get("PYTHONPATH", "")
    return {**variables, "PYTHONPATH": f"{hooks}{os.pathsep}{path}" if path else str(hooks)}


def _of_launcher(
    plan: LaunchPlan, node: int, local_rank: int, meeting: Rendezvous
) -> dict[str, str]:
    if plan.distribution == TENSORFLOW:
        from torchyard.worker.launch import tensorflow_tasks  # Other kinds need no such thing.

        return tensorflow_tasks.variables(plan, node, local_rank, meeting.hosts, meeting.ports)
    if plan.distribution == MPI:
        # mpirun says the same; here for a job of one process, which goes without it.
        return {
            "OMPI_COMM_WORLD_RANK": str(node * plan.processes_per_node + local_rank),
            "OMPI_COMM_WORLD_SIZE": str(plan.world_size),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(plan.processes_per_node),
        }
    return {}


def _defaults(plan: LaunchPlan, found: Surroundings) -> dict[str, str]:
    # Nodes of a local cluster share the machine's cores.
    sharing = plan.world_size if plan.single_host else plan.processes_per_node
    threads = max(1, found.cpu_count // sharing)
    if plan.cores:
        threads = max(1, min(threads, plan.cores // plan.processes_per_node))
    values = {
        "OMP_NUM_THREADS": str(threads),
        # A rank that is killed while it compiles leaves a lock there, and whoever shares the
        # folder waits for it for ever.
        "TORCH_EXTENSIONS_DIR": str(found.temporary / "torch_extensions"),
    }
    if found.meeting.interface:
        # Without it gloo takes the host name's address, which is often 127.0.1.1.
        values["GLOO_SOCKET_IFNAME"] = found.meeting.interface
    return values


def _platform(plan: LaunchPlan, node: int, found: Surroundings) -> dict[str, str]:
    work = found.folders.work
    return {
        "MLFLOW_TRACKING_URI": found.relay_url,
        "MLFLOW_TRACKING_TOKEN": plan.variables.get("AZUREML_RUN_TOKEN", plan.run_token),
        "AZUREML_CR_NODE_RANK": str(node),
        "AZUREML_CR_EXECUTION_WORKING_DIR_PATH": str(work),
        "AZUREML_OUTPUT_DIRECTORY": str(work / "outputs"),
        "AZUREML_LOGDIRECTORY_PATH": str(work / "logs"),
        "AZ_BATCHAI_JOB_TEMP": str(found.temporary),
        "TMPDIR": str(found.temporary),
        # Azure's clients keep there what they know of clouds, by names that all servers share.
        "AZURE_CONFIG_DIR": str(found.temporary / "azure"),
        "PWD": str(work),
    }


def _no_proxy(passed_on: Mapping[str, str]) -> dict[str, str]:
    """A site's proxy must not be asked for the relay, which is on this machine."""
    named = passed_on.get("no_proxy") or passed_on.get("NO_PROXY") or ""
    names = ",".join(filter(None, (named, "127.0.0.1")))
    return {"no_proxy": names, "NO_PROXY": names}


def _distributed(plan: LaunchPlan, node: int, meeting: Rendezvous) -> dict[str, str]:
    hosts = ",".join(meeting.hosts)
    config = {"rank": "RANK", "local_rank": "LOCAL_RANK", "host_list": list(meeting.hosts)}
    return {
        "WORLD_SIZE": str(plan.world_size),
        "LOCAL_WORLD_SIZE": str(plan.processes_per_node),
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "AZ_BATCH_MASTER_NODE": f"{meeting.address}:{meeting.port}",
        "AZ_BATCHAI_MPI_MASTER_NODE": meeting.address,
        # Fresh for each attempt: a file left by an earlier one would end this one's meeting.
        "AZ_BATCHAI_PYTORCH_INIT_METHOD": f"file://{plan.scratch}/pytorch-meeting",
        "HOST_LIST": hosts,
        "AZ_BATCH_HOST_LIST": hosts,
        "AZUREML_CR_DISTRIBUTED_CONFIG": json.dumps(config),
    }


def _data(layout: Layout) -> dict[str, str]:
    return {
        **{f"AZURE_ML_INPUT_{name}": value for name, value in layout.inputs.items()},
        **{f"AZURE_ML_OUTPUT_{name}": value for name, value in layout.outputs.items()},
    }


def _python(passed_on: Mapping[str, str], found: Surroundings) -> dict[str, str]:
    values = {"PYTHONUNBUFFERED": "1"}
    if found.programs is not None:
        path = passed_on.get("PATH") or os.defpath
        values["PATH"] = f"{found.programs}{os.pathsep}{path}"
        if (found.programs.parent / "pyvenv.cfg").exists():
            values["VIRTUAL_ENV"] = str(found.programs.parent)
    return values


def _compute_context(plan: LaunchPlan, node: int, found: Surroundings) -> str:
    context = {
        "cluster_name": plan.cluster,
        "node_id": found.hostname,
        "node_rank": node,
        "node_count": plan.node_count,
        "vm_size": plan.size,
        "gpu_count": plan.gpus_per_node,
    }
    return json.dumps(context)
