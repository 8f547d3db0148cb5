"""The environment variables of a rank.

Owns: every variable that only the node can set, and the precedence of the sources.
Leaves: what the server sets (run ids, workspace) to the plan's `variables`, those of a launcher to
launch_forms.py.
Always: the user's variables take precedence; none of the worker's own settings reaches a rank.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files import interception, rehearsal
from torchyard.worker.files.node_folders import Layout, NodeFolders
from torchyard.worker.launch import launch_forms
from torchyard.worker.launch.launch_forms import LAUNCHER_VARIABLES
from torchyard.worker.launch.node_setup import NodeSetup
from torchyard.worker.preflight.rendezvous import Rendezvous
from torchyard.worker.relay import sdk_v1_addresses
from torchyard.worker.system import devices
from torchyard.worker.system.processes import MARK_VARIABLE, mark

# With PYTHONDONTWRITEBYTECODE, `import torch` takes three times as much CPU; the others refer to
# the platform's Python, not the job's.
_REMOVED_VARIABLES = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "_")
_PLATFORM_PREFIX = "TORCHYARD_"
RESUMED_VARIABLE = "TORCHYARD_RESUMED"
RANK_VARIABLE = "TORCHYARD_RANK"


def node_variables(
    base: Mapping[str, str], plan: LaunchPlan, node: int, setup: NodeSetup
) -> dict[str, str]:
    """The variables that all ranks of a node share, without the user's."""
    passed_on = {
        name: value
        for name, value in base.items()
        if name not in _REMOVED_VARIABLES
        and name not in LAUNCHER_VARIABLES
        and not name.startswith(_PLATFORM_PREFIX)
    }
    if plan.image:
        from torchyard.worker.launch import image_root  # Few jobs run in an image.

        passed_on = image_root.variables(plan.image, passed_on)
    return {
        **_defaults(plan, setup),
        **passed_on,
        "AZUREML_CR_COMPUTE_CONTEXT": _compute_context(plan, node, setup),
        **plan.variables,
        **_platform(plan, node, setup),
        **sdk_v1_addresses.variables(plan, setup.relay_url),
        **_no_proxy(passed_on),
        **_hosts(plan, node, setup.rendezvous),
        **_data(setup.layout),
        **_python(passed_on, setup),
    }


def rank_variables(
    shared: Mapping[str, str], plan: LaunchPlan, node: int, local_rank: int, rendezvous: Rendezvous
) -> dict[str, str]:
    """All variables of one rank."""
    rank = node * plan.processes_per_node + local_rank
    return {
        **shared,
        # What `torchyard.train` tells ranks apart by where no launcher numbers them.
        RANK_VARIABLE: str(rank),
        "AZ_BATCHAI_TASK_INDEX": str(rank),
        "AZUREML_PROCESS_NAME": f"rank_{rank}",
        **launch_forms.variables(plan, node, local_rank, rendezvous),
        **plan.environment_variables,
        **devices.variables(plan, node),
        # Last, so that nothing overrides it: lost processes are found by it.
        MARK_VARIABLE: mark(plan.attempt_id, node),
        **rehearsal.variables(plan),
        **interception.variables(plan),
    }


def with_hooks(variables: Mapping[str, str], hooks: Path) -> dict[str, str]:
    """Add the hooks to PYTHONPATH, where the Pythons of an image find them."""
    path = variables.get("PYTHONPATH", "")
    return {**variables, "PYTHONPATH": f"{hooks}{os.pathsep}{path}" if path else str(hooks)}


def _defaults(plan: LaunchPlan, setup: NodeSetup) -> dict[str, str]:
    # Nodes of a local cluster share the machine's cores.
    rank_count = plan.world_size if plan.single_host else plan.processes_per_node
    threads = max(1, setup.cpu_count // rank_count)
    if plan.cores:
        threads = max(1, min(threads, plan.cores // plan.processes_per_node))
    values = {
        "OMP_NUM_THREADS": str(threads),
        # A rank that is killed while it compiles leaves a lock in this folder, and everyone who
        # shares the folder would wait for it forever.
        "TORCH_EXTENSIONS_DIR": str(setup.temporary / "torch_extensions"),
    }
    if setup.rendezvous.interface:
        # By default, gloo uses the host name's address, which is often 127.0.1.1.
        values["GLOO_SOCKET_IFNAME"] = setup.rendezvous.interface
    return values


def _checkpoints(plan: LaunchPlan, setup: NodeSetup) -> dict[str, str]:
    """What `torchyard.train` reads. The nodes of one machine save to the folder of the first."""
    values = {RESUMED_VARIABLE: str(setup.temporary / "torchyard-resumed.json")}
    if plan.single_host and plan.node_count > 1 and not plan.image:
        first = NodeFolders(setup.folders.node.parent / "node-0")
        values["TORCHYARD_CHECKPOINTS"] = str(first.work / "outputs" / "checkpoints")
    return values


def _platform(plan: LaunchPlan, node: int, setup: NodeSetup) -> dict[str, str]:
    work = setup.folders.work
    return {
        **_checkpoints(plan, setup),
        # With Azure's plug-in it is the workspace's address, as on Azure.
        "MLFLOW_TRACKING_URI": plan.variables.get("MLFLOW_TRACKING_URI", setup.relay_url),
        "TORCHYARD_RELAY": setup.relay_url,
        "MLFLOW_TRACKING_TOKEN": plan.variables.get("AZUREML_RUN_TOKEN", plan.run_token),
        "AZUREML_CR_NODE_RANK": str(node),
        "AZUREML_CR_EXECUTION_WORKING_DIR_PATH": str(work),
        "AZUREML_OUTPUT_DIRECTORY": str(work / "outputs"),
        "AZUREML_LOGDIRECTORY_PATH": str(work / "logs"),
        "AZ_BATCHAI_JOB_TEMP": str(setup.temporary),
        "TMPDIR": str(setup.temporary),
        # Azure's clients store settings of clouds here, under names that all servers share.
        "AZURE_CONFIG_DIR": str(setup.temporary / "azure"),
        "PWD": str(work),
    }


def _no_proxy(passed_on: Mapping[str, str]) -> dict[str, str]:
    """Exclude the relay on this machine from a site's proxy."""
    excluded_hosts = passed_on.get("no_proxy") or passed_on.get("NO_PROXY") or ""
    names = ",".join(filter(None, (excluded_hosts, "127.0.0.1")))
    return {"no_proxy": names, "NO_PROXY": names}


def _hosts(plan: LaunchPlan, node: int, rendezvous: Rendezvous) -> dict[str, str]:
    """Names of Azure Batch, of Batch AI and of Azure ML: public scripts read all of them, and take
    one that is missing for a job on one node.
    """
    hosts = ",".join(rendezvous.hosts)
    config = {"rank": "RANK", "local_rank": "LOCAL_RANK", "host_list": list(rendezvous.hosts)}
    return {
        "AZ_BATCH_MASTER_NODE": f"{rendezvous.address}:{rendezvous.port}",
        "AZ_BATCHAI_MPI_MASTER_NODE": rendezvous.address,
        "AZ_BATCHAI_JOB_MASTER_NODE_IP": rendezvous.address,
        "AZ_BATCHAI_PYTORCH_INIT_METHOD": _init_method(plan, rendezvous),
        "HOST_LIST": hosts,
        "AZ_BATCH_HOST_LIST": hosts,
        "AZ_BATCH_NODE_LIST": ";".join(rendezvous.hosts),
        "AZ_BATCHAI_NODE_IP": rendezvous.hosts[node],
        "AZ_BATCH_IS_CURRENT_NODE_MASTER": "true" if node == 0 else "false",
        "AZUREML_NODE_COUNT": str(plan.node_count),
        "AZUREML_CR_DISTRIBUTED_CONFIG": json.dumps(config),
    }


def _init_method(plan: LaunchPlan, rendezvous: Rendezvous) -> str:
    if plan.node_folder and plan.node_count > 1:
        return f"tcp://{rendezvous.address}:{rendezvous.port}"  # no folder is every node's
    # A new file for each attempt, because an old one would break the rendezvous.
    return f"file://{plan.scratch}/pytorch-rendezvous"


def _data(layout: Layout) -> dict[str, str]:
    return {
        **{f"AZURE_ML_INPUT_{name}": value for name, value in layout.inputs.items()},
        **{f"AZURE_ML_OUTPUT_{name}": value for name, value in layout.outputs.items()},
    }


def _python(passed_on: Mapping[str, str], setup: NodeSetup) -> dict[str, str]:
    values = {"PYTHONUNBUFFERED": "1"}
    if setup.programs is not None:
        path = passed_on.get("PATH") or os.defpath
        values["PATH"] = f"{setup.programs}{os.pathsep}{path}"
        if (setup.programs.parent / "pyvenv.cfg").exists():
            values["VIRTUAL_ENV"] = str(setup.programs.parent)
    return values


def _compute_context(plan: LaunchPlan, node: int, setup: NodeSetup) -> str:
    context = {
        "cluster_name": plan.cluster,
        "node_id": setup.hostname,
        "node_rank": node,
        "node_count": plan.node_count,
        "vm_size": plan.size,
        "gpu_count": plan.gpus_per_node,
    }
    return json.dumps(context)
