"""The launch plan: all that an executor and a worker may know of a job.

Owns: the plan's fields and their one JSON form.
Leaves: making a plan to jobs/, acting on it to executors/ and worker/.
Always: standard library only, Python 3.9 and later; a plan read back equals the plan written.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class InputPlan:
    """One input. `kind` is literal, uri_file, uri_folder, mltable or a type of model.

    A literal carries its text in `value`; a file or folder names the snapshot that holds it, or
    is at `source`, a path of the node's own disk.
    """

    kind: str
    value: str = ""
    snapshot: str = ""
    mode: str = "ro_mount"
    source: str = ""


@dataclass(frozen=True)
class OutputPlan:
    """One named output. `kind` is uri_file, uri_folder, mltable or a type of model.

    `file` is the file's name for a uri_file, the output's own when empty. A direct output carries
    the text that the script gets in `value`; nothing of it is delivered. One that `is_shared` may
    hold files of other jobs when the first attempt starts.
    """

    kind: str = "uri_folder"
    mode: str = "rw_mount"
    file: str = ""
    value: str = ""
    is_shared: bool = False


@dataclass(frozen=True)
class DevicePlan:
    """One GPU that a node may use. `kind` is nvidia, amd or pretended; `index` is what the vendor's
    listing program calls it.
    """

    kind: str
    index: int
    uuid: str


@dataclass(frozen=True)
class ImagePlan:
    """The root filesystem that the ranks run in: the folder `rootfs`, shared and only read.

    `variables` are those that the image sets; `visible` are files and folders of the machine that
    ranks see at the same place, read-only.
    """

    rootfs: str
    variables: dict[str, str] = field(default_factory=dict)
    visible: list[str] = field(default_factory=list)


# What a worker and its supervisor take at the most, beside the ranks.
_WORKER_BYTES = 1 << 30
_WORKER_PROCESSES = 256
LOCAL = "local"
"""The engine of nodes that are processes of the server's machine."""
OPEN, WORKSPACE_ONLY, NONE = "open", "workspace", "none"
"""What ranks may connect to: everything, the server and the job's other nodes, nothing."""


@dataclass(frozen=True)
class LimitsPlan:
    """What the ranks of one node may take, besides cores and memory; 0 where nothing limits them.

    `processes` counts threads too, as the kernel does; `open_files` is per process; `disk_bytes` is
    all that they write to the node's folder, outputs and logs included. `network` is open,
    workspace or none.
    """

    processes: int = 0
    open_files: int = 0
    disk_bytes: int = 0
    network: str = OPEN


GATE_HOST = "gate.torchyard.invalid:443"
"""Stands in a plan's variables for where the node's gate listens, which only the node knows."""


@dataclass(frozen=True)
class GatePlan:
    """The way to the server for clients that insist on TLS and on one address.

    The worker listens on loopback and passes what comes on to the first of `urls` that answers, as
    it is: clients speak TLS with the server itself, whose certificate is good for loopback and
    signed by `authority` (PEM).
    """

    urls: list[str]
    authority: str


@dataclass(frozen=True)
class ServicePlan:
    """A program beside the ranks. `kind` is jupyter_lab, tensor_board, vs_code or custom, which
    `command` starts, or the script itself; `port` is 0 where the node chooses one.

    `is_handed`: the script inherits the socket that it listens at. On the server's machine the
    server makes it, at `socket` in a folder of its own; elsewhere the node does.
    """

    name: str
    kind: str
    port: int = 0
    all_nodes: bool = False
    log_dir: str = ""
    command: str = ""
    is_handed: bool = False
    socket: str = ""


@dataclass(frozen=True)
class LaunchPlan:
    """What to run, and where to report.

    `environment` is the folder of a built environment, empty for the platform's own Python and
    for an `image`.
    `blobs` is the server's blob folder when the node can see it, else empty: then blobs come
    over HTTP. `scratch` is a folder of this attempt's own, shared by the nodes of a local engine.
    `server_id` is what the server signs with when it disowns a worker; `server_file` tells where
    it listens now, on nodes that see its disk.
    `distribution` is pytorch, mpi, tensorflow or empty; `parameter_servers` are those of TensorFlow
    among all processes.
    `variables` are the job variables that the server knows (AZUREML_*, MLFLOW_*); the worker adds
    those that only a node knows. `environment_variables` are the user's and win over both;
    `secrets` are the names among them whose values are masked, `not_secrets` those that only look
    as if.
    `communication_backend` is nccl, gloo, or empty when the job does not say. `preflight` is on,
    warn (its errors are told, and the ranks start), off, or always: for a single rank, too.
    `cluster` and `size` name the nodes; `cores` and `memory_bytes` are what one of them is
    promised, 0 where nothing is. A node gets `gpus_per_node` devices: the engine fills in which,
    by node; `devices` is empty where the machine has none.
    `person` is the job's owner, whose Unix account the runner starts the nodes as.
    `rehearsed_gpus` is how many GPUs the script of a rehearsal on the CPU sees, 0 without one.

    `engine` runs the nodes, as `engine_settings` of the cluster say. Nodes that don't see the
    server's disk find it at `server_url` and `server_urls`, trust `server_certificate` (PEM, empty
    for what the machine trusts), and fetch the environment by `environment_hash` where the folder
    is not there; `environment_mark` (shared/environment_mark.py) tells it from another folder of
    the same name. `scratch` is empty then: each node chooses its own below
    `node_folder`, where it also keeps what it fetches. `address` is this node's in the engine's
    network. Both are filled in on the node. `gate` is for Azure's clients there; `variables` name
    it by GATE_HOST.

    A node that stops looks for the stacks of its ranks for `last_stacks_s`, however many they are,
    so that it does not wait for ranks that don't answer. Ranks that stand still for
    `stall_notice_s` are reported, never when 0.

    `services` are started beside the ranks, from `services_environment` where the job's own lacks
    them. The node stays `hold_s` after its ranks have ended. What it uses is sampled every
    `system_metrics_s`, never when 0. With `intercepts_saves`, torch.save writes in the background.
    With `peer_copies`, nodes keep copies of each other's checkpoints until the server has them.
    """

    attempt_id: str
    attempt: int
    job: str
    workspace: str
    experiment: str
    command: str
    server_url: str
    report_token: str
    run_token: str
    scratch: str
    distribution: str = ""
    node_count: int = 1
    processes_per_node: int = 1
    parameter_servers: int = 0
    environment: str = ""
    environment_variables: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    not_secrets: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    code: str = ""
    inputs: dict[str, InputPlan] = field(default_factory=dict)
    outputs: dict[str, OutputPlan] = field(default_factory=dict)
    blobs: str = ""
    single_host: bool = False
    grace_s: float = 10.0
    preemption_grace_s: float = 30.0
    join_timeout_s: float = 600.0
    last_stacks_s: float = 3.0
    timeout_s: float = 0.0
    server_id: str = ""
    server_file: str = ""
    rendezvous_timeout_s: float = 0.0
    hang_after_s: float = 0.0
    hang_action: str = "dump"
    stall_notice_s: float = 0.0
    python: str = ""
    communication_backend: str = ""
    preflight: str = "on"
    rehearsed_gpus: int = 0
    cluster: str = ""
    size: str = ""
    cores: int = 0
    memory_bytes: int = 0
    gpus_per_node: int = 0
    devices: list[list[DevicePlan]] = field(default_factory=list)
    image: ImagePlan | None = None
    person: str = ""
    limits: LimitsPlan = LimitsPlan()
    engine: str = LOCAL
    engine_settings: dict[str, Any] = field(default_factory=dict)
    server_urls: list[str] = field(default_factory=list)
    server_certificate: str = ""
    environment_hash: str = ""
    environment_mark: str = ""
    address: str = ""
    node_folder: str = ""
    gate: GatePlan | None = None
    services: list[ServicePlan] = field(default_factory=list)
    services_environment: str = ""
    hold_s: float = 0.0
    system_metrics_s: float = 0.0
    intercepts_saves: bool = False
    peer_copies: bool = False

    @property
    def node_limits(self) -> dict[str, int]:
        """What all of a node may take, its worker too, as the runner limits it; the worker limits
        the ranks alone.
        """
        memory_bytes, processes = self.memory_bytes, self.limits.processes
        return {
            "cores": self.cores,
            "memory_bytes": memory_bytes + _WORKER_BYTES if memory_bytes else 0,
            "processes": processes + _WORKER_PROCESSES if processes else 0,
        }

    @property
    def world_size(self) -> int:
        """Processes over all nodes."""
        return self.node_count * self.processes_per_node

    def to_json(self) -> str:
        """One JSON object, keys as the fields."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


def from_json(text: str) -> LaunchPlan:
    """Read what `to_json` wrote.

    Raises:
        TypeError: a key is unknown or missing.
    """
    body: dict[str, Any] = json.loads(text)
    body["inputs"] = {name: InputPlan(**value) for name, value in body["inputs"].items()}
    body["outputs"] = {name: OutputPlan(**value) for name, value in body["outputs"].items()}
    body["devices"] = [
        [DevicePlan(**device) for device in node] for node in body.get("devices", [])
    ]
    body["image"] = ImagePlan(**body["image"]) if body.get("image") else None
    body["gate"] = GatePlan(**body["gate"]) if body.get("gate") else None
    body["services"] = [ServicePlan(**service) for service in body.get("services", [])]
    body["limits"] = LimitsPlan(**(body.get("limits") or {}))
    return LaunchPlan(**body)
