"""Facts about a node, gathered before its ranks start, for all nodes to compare.

Owns: reading them from the kernel's files and the job's environment.
Leaves: what they mean to checks.py, the exchange to rendezvous.py.
Always: nothing is imported, no name is resolved and no program is run, so that gathering takes a
millisecond or two. What can't be read is reported as unknown, never guessed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.system import devices as devices_of
from torchyard.worker.system import networks

NCCL, GLOO = "nccl", "gloo"
_UNKNOWN = -1
# The field `probe_port` in JSON.
_PROBE_PORT_KEY = "door"
_NO_DEVICE = ("", "-1", "NoDevFiles")


@dataclass(frozen=True)
class Facts:
    """The facts of one node; sizes are -1 if they are unknown.

    `machine` identifies the machine, `network` its network stack.
    `interfaces` holds the addresses of each interface; `nccl_names` and `gloo_names` are the
    ranks' NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, None if they are not set.
    `torch_gpu` is what the environment's torch was built for: `cuda`, `hip` or empty.
    Other nodes probe `probe_port` and identify themselves with `nonce`.
    """

    node: int
    host: str = ""
    machine: str = ""
    network: str = ""
    address: str = ""
    interfaces: dict[str, list[str]] = field(default_factory=dict)
    mtu: int = _UNKNOWN
    devices: list[str] = field(default_factory=list)
    backend: str = ""
    nccl_names: str | None = None
    gloo_names: str | None = None
    torch: str = ""
    torch_gpu: str = ""
    disk_free_bytes: int = _UNKNOWN
    files_free: int = _UNKNOWN
    shm_bytes: int = _UNKNOWN
    shm_free_bytes: int = _UNKNOWN
    memory_free_bytes: int = _UNKNOWN
    probe_port: int = 0
    nonce: str = ""

    def to_dict(self) -> dict[str, Any]:
        body = asdict(self)
        body[_PROBE_PORT_KEY] = body.pop("probe_port")
        return body


_NAMES = frozenset(item.name for item in fields(Facts)) - {"probe_port"}


def from_dict(body: Mapping[str, Any]) -> Facts:
    """Read what `to_dict` wrote, in this version of the worker or another one."""
    values = {name: value for name, value in body.items() if name in _NAMES}
    return Facts(**values, probe_port=int(body.get(_PROBE_PORT_KEY) or 0))


@dataclass(frozen=True)
class SystemPaths:
    """Where the kernel's files are; tests use another root."""

    root: Path = Path("/")
    shm: Path = Path("/dev/shm")


def gather(
    plan: LaunchPlan,
    node: int,
    base: Mapping[str, str],
    folder: Path,
    address: str,
    probe: tuple[int, str] = (0, ""),
    paths: SystemPaths | None = None,
) -> Facts:
    """Gather the facts of this node.

    Args:
        base: the environment that ranks inherit.
        folder: the node's, on the disk that its ranks will write to.
        probe: port and nonce, for the other nodes.
    """
    paths = paths or SystemPaths()
    variables = {**base, **plan.variables, **plan.environment_variables}
    torch, torch_gpu = _torch_build(plan.environment)
    disk_free, files_free, _ = _free_space(folder)
    shm_free, _, shm = _free_space(paths.shm)
    return Facts(
        node=node,
        host=socket.gethostname(),
        machine=_text(paths.root / "proc/sys/kernel/random/boot_id"),
        network=_network_namespace(paths.root),
        address=address,
        interfaces=networks.all_addresses(),
        mtu=networks.mtu_of(networks.interface_of(address)),
        devices=_visible_gpus(plan, node, variables, paths.root),
        backend=requested_backend(plan),
        nccl_names=variables.get("NCCL_SOCKET_IFNAME"),
        gloo_names=variables.get("GLOO_SOCKET_IFNAME"),
        torch=torch,
        torch_gpu=torch_gpu,
        disk_free_bytes=disk_free,
        files_free=files_free,
        shm_bytes=shm,
        shm_free_bytes=shm_free,
        memory_free_bytes=_memory_free(paths.root),
        probe_port=probe[0],
        nonce=probe[1],
    )


def requested_backend(plan: LaunchPlan) -> str:
    """The backend that the job requests: `nccl`, `gloo`, or empty if it requests none.

    Requested by `distribution.communication_backend`, or by a variable such as DIST_BACKEND or
    Lightning's PL_TORCH_DISTRIBUTED_BACKEND. A rehearsal always uses gloo.
    """
    if plan.rehearsed_gpus:
        return GLOO
    values = [plan.communication_backend]
    values += [
        value for name, value in plan.environment_variables.items() if name.endswith("BACKEND")
    ]
    backends = [value.strip().lower() for value in values]
    return next((value for value in backends if value in (NCCL, GLOO)), "")


def _visible_gpus(
    plan: LaunchPlan, node: int, variables: Mapping[str, str], root: Path
) -> list[str]:
    """The GPUs that the ranks of this node will see, by names unique on the machine."""
    if plan.devices:
        # Numbers or names, as in either vendor's variable.
        visible = devices_of.variables(plan, node)[devices_of.ROCR]
        return [word for word in visible.split(",") if word]
    machine_gpus = _machine_gpus(root)
    setting = variables.get(devices_of.CUDA)
    if setting is None or not machine_gpus:
        return machine_gpus
    devices = [word.strip() for word in setting.split(",")]
    # Like CUDA, which ignores everything from the first invalid device on.
    end = next((at for at, word in enumerate(devices) if word in _NO_DEVICE), len(devices))
    return devices[:end]


def _machine_gpus(root: Path) -> list[str]:
    try:
        names = os.listdir(root / "dev")
    except OSError:
        names = []
    nvidia = [name[6:] for name in names if name.startswith("nvidia") and name[6:].isdigit()]
    if nvidia:
        return sorted(nvidia, key=int)
    gpus: list[str] = []
    try:
        nodes = sorted(os.listdir(root / "sys/class/kfd/kfd/topology/nodes"), key=int)
    except (OSError, ValueError):
        return []
    for name in nodes:
        text = _text(root / "sys/class/kfd/kfd/topology/nodes" / name / "properties")
        counts = [line for line in text.splitlines() if line.startswith("simd_count ")]
        if counts and counts != ["simd_count 0"]:
            gpus.append(str(len(gpus)))
    return gpus


def _torch_build(environment: str) -> tuple[str, str]:
    """The version of the torch that the ranks will import, and the GPUs it was built for."""
    if not environment:
        return "", ""
    for file in Path(environment, "lib").glob("python3*/site-packages/torch/version.py"):
        text = _string_assignments(_text(file))
        if "__version__" in text:
            return text["__version__"], next((gpu for gpu in ("cuda", "hip") if gpu in text), "")
    return "", ""


def _string_assignments(source: str) -> dict[str, str]:
    """The strings that a Python file assigns, as in `cuda: Optional[str] = '13.0'`."""
    gpus = {}
    for line in source.splitlines():
        name, _, value = line.partition("=")
        value = value.strip()
        if value[:1] in ("'", '"'):
            gpus[name.partition(":")[0].strip()] = value.strip("'\"")
    return gpus


def _network_namespace(root: Path) -> str:
    boot = _text(root / "proc/sys/kernel/random/boot_id")
    try:
        return f"{boot}:{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return boot


def _free_space(folder: Path) -> tuple[int, int, int]:
    """Free bytes and free files for an ordinary user, and the size in bytes."""
    try:
        gpus = os.statvfs(folder)
    except OSError:
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    # Some file systems, such as btrfs, do not count files.
    files_free = gpus.f_favail if gpus.f_files else _UNKNOWN
    return gpus.f_bavail * gpus.f_frsize, files_free, gpus.f_blocks * gpus.f_frsize


def _memory_free(root: Path) -> int:
    """The bytes available on the machine, or in the tightest cgroup of this process if less.

    Cached pages of files give way, and count as available.

    Source: proc_meminfo(5), and cgroup v2's memory.max, memory.current and memory.stat.
    """
    fields = _line_value(root / "proc/meminfo", "MemAvailable:").split()
    available_bytes = int(fields[0]) * 1024 if fields else _UNKNOWN
    top = root / "sys/fs/cgroup"
    group = top / _line_value(root / "proc/self/cgroup", "0::/")
    while group != group.parent:
        limit, usage = _text(group / "memory.max"), _text(group / "memory.current")
        if limit.isdigit() and usage.isdigit():
            cached_bytes = sum(
                int(_line_value(group / "memory.stat", name) or 0)
                for name in ("inactive_file ", "active_file ")
            )
            free_bytes = max(0, int(limit) - max(0, int(usage) - cached_bytes))
            available_bytes = (
                free_bytes if available_bytes < 0 else min(available_bytes, free_bytes)
            )
        if group == top:
            break
        group = group.parent
    return available_bytes


def _line_value(file: Path, prefix: str) -> str:
    """The rest of the first line that starts with `prefix`."""
    lines = _text(file).splitlines()
    return next((line[len(prefix) :] for line in lines if line.startswith(prefix)), "")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
