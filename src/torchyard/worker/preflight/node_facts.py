"""What a node knows of itself before its ranks start, for the others to compare.

Owns: reading it from the kernel's files and the job's environment.
Leaves: what it means to checks.py, the exchange to rendezvous.py.
Always: nothing is imported, looked up by name or asked of another program: all of it together
costs a millisecond or two. What can't be read is told as unknown, never guessed.
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
_NO_DEVICE = ("", "-1", "NoDevFiles")


@dataclass(frozen=True)
class Facts:
    """Of one node; sizes are -1 where they are not known.

    `machine` tells one machine from another, `network` one network stack from another.
    `interfaces` holds the addresses of each; `nccl_names` and `gloo_names` are what the ranks
    will have as NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, None when they are not set.
    `torch_gpu` is what the environment's torch was built for: cuda, hip or nothing.
    `door` is the port where the other nodes may knock, with `nonce` as the word.
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
    door: int = 0
    nonce: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_NAMES = frozenset(one.name for one in fields(Facts))


def read(body: Mapping[str, Any]) -> Facts:
    """What `to_dict` wrote, by a worker of this version or another."""
    return Facts(**{name: value for name, value in body.items() if name in _NAMES})


@dataclass(frozen=True)
class Places:
    """Where the kernel's files are; another root for tests."""

    root: Path = Path("/")
    shm: Path = Path("/dev/shm")


def gather(
    plan: LaunchPlan,
    node: int,
    base: Mapping[str, str],
    folder: Path,
    address: str,
    door: tuple[int, str] = (0, ""),
    places: Places | None = None,
) -> Facts:
    """
    Args:
        base: the environment that ranks inherit.
        folder: of the node, on the disk that its ranks will write to.
        door: port and word.
    """
    places = places or Places()
    seen = {**base, **plan.variables, **plan.environment_variables}
    torch, torch_gpu = _torch(plan.environment)
    disk_free, files_free, _ = _room(folder)
    shm_free, _, shm = _room(places.shm)
    return Facts(
        node=node,
        host=socket.gethostname(),
        machine=_text(places.root / "proc/sys/kernel/random/boot_id"),
        network=_network(places.root),
        address=address,
        interfaces=networks.all_addresses(),
        mtu=networks.mtu_of(networks.interface_of(address)),
        devices=_devices(plan, node, seen, places.root),
        backend=asked_backend(plan),
        nccl_names=seen.get("NCCL_SOCKET_IFNAME"),
        gloo_names=seen.get("GLOO_SOCKET_IFNAME"),
        torch=torch,
        torch_gpu=torch_gpu,
        disk_free_bytes=disk_free,
        files_free=files_free,
        shm_bytes=shm,
        shm_free_bytes=shm_free,
        memory_free_bytes=_memory_free(places.root),
        door=door[0],
        nonce=door[1],
    )


def asked_backend(plan: LaunchPlan) -> str:
    """What the job says that its ranks talk by: `nccl`, `gloo`, or empty when it does not say.

    Said by `distribution.communication_backend`, or by a variable such as DIST_BACKEND or
    Lightning's PL_TORCH_DISTRIBUTED_BACKEND. A rehearsal has gloo whatever the script says.
    """
    if plan.rehearsed_gpus:
        return GLOO
    said = [plan.communication_backend]
    said += [
        value for name, value in plan.environment_variables.items() if name.endswith("BACKEND")
    ]
    known = [value.strip().lower() for value in said]
    return next((value for value in known if value in (NCCL, GLOO)), "")


def _devices(plan: LaunchPlan, node: int, seen: Mapping[str, str], root: Path) -> list[str]:
    """The GPUs that the ranks of this node will see, by what is unique on the machine."""
    if plan.devices:
        # As they are numbered or named in either vendor's variable.
        given = devices_of.variables(plan, node)[devices_of.ROCR]
        return [word for word in given.split(",") if word]
    there = _gpus_of_machine(root)
    named = seen.get(devices_of.CUDA)
    if named is None or not there:
        return there
    words = [word.strip() for word in named.split(",")]
    # As CUDA reads it: the first that is no device ends the list.
    end = next((at for at, word in enumerate(words) if word in _NO_DEVICE), len(words))
    return words[:end]


def _gpus_of_machine(root: Path) -> list[str]:
    try:
        names = os.listdir(root / "dev")
    except OSError:
        names = []
    nvidia = [name[6:] for name in names if name.startswith("nvidia") and name[6:].isdigit()]
    if nvidia:
        return sorted(nvidia, key=int)
    found: list[str] = []
    try:
        nodes = sorted(os.listdir(root / "sys/class/kfd/kfd/topology/nodes"), key=int)
    except (OSError, ValueError):
        return []
    for name in nodes:
        told = _text(root / "sys/class/kfd/kfd/topology/nodes" / name / "properties")
        counts = [line for line in told.splitlines() if line.startswith("simd_count ")]
        if counts and counts != ["simd_count 0"]:
            found.append(str(len(found)))
    return found


def _torch(environment: str) -> tuple[str, str]:
    """Version of the torch that the ranks will import, and what GPU it was built for."""
    if not environment:
        return "", ""
    for file in Path(environment, "lib").glob("python3*/site-packages/torch/version.py"):
        told = _texts_in(_text(file))
        if "__version__" in told:
            return told["__version__"], next((gpu for gpu in ("cuda", "hip") if gpu in told), "")
    return "", ""


def _texts_in(program: str) -> dict[str, str]:
    """Names of a Python file that are set to a text, as in `cuda: Optional[str] = '13.0'`."""
    found = {}
    for line in program.splitlines():
        name, _, value = line.partition("=")
        value = value.strip()
        if value[:1] in ("'", '"'):
            found[name.partition(":")[0].strip()] = value.strip("'\"")
    return found


def _network(root: Path) -> str:
    boot = _text(root / "proc/sys/kernel/random/boot_id")
    try:
        return f"{boot}:{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return boot


def _room(folder: Path) -> tuple[int, int, int]:
    """Free bytes and free files for an ordinary user, and bytes in all."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    # Some file systems, as btrfs, have no number of files.
    files = found.f_favail if found.f_files else _UNKNOWN
    return found.f_bavail * found.f_frsize, files, found.f_blocks * found.f_frsize


def _memory_free(root: Path) -> int:
    """What the machine has available, or the tightest cgroup around this process if that is less.

    Source: proc_meminfo(5), and cgroup v2's memory.max and memory.current.
    """
    kib = _after(root / "proc/meminfo", "MemAvailable:").split()
    least = int(kib[0]) * 1024 if kib else _UNKNOWN
    top = root / "sys/fs/cgroup"
    group = top / _after(root / "proc/self/cgroup", "0::/")
    while group not in (top, group.parent):
        most, now = _text(group / "memory.max"), _text(group / "memory.current")
        if most.isdigit() and now.isdigit():
            left = max(0, int(most) - int(now))
            least = left if least < 0 else min(least, left)
        group = group.parent
    return least


def _after(file: Path, start: str) -> str:
    """The rest of the first line that begins so."""
    lines = _text(file).splitlines()
    return next((line[len(start) :] for line in lines if line.startswith(start)), "")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
