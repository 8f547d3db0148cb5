"""Find what would keep a job's ranks from working together, in the facts of its nodes.

Owns: the checks and their thresholds, the messages of the findings, the table of codes.
Leaves: gathering facts to node_facts.py, connections between nodes to links.py.
Always: the checks are pure functions of the facts, so every node finds the same; an unknown fact
is never a finding. What would make the ranks fail or hang is an error; all else is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torchyard.shared.plurals import plural
from torchyard.worker.preflight.node_facts import GLOO, NCCL, Facts

ERROR, WARNING = "error", "warning"
_MIB, _GIB = 1 << 20, 1 << 30
# Logs, a thin environment and an empty checkpoint folder need less; training needs more.
DISK_LEAST_BYTES = 64 * _MIB
DISK_WARN_BYTES = 2 * _GIB
FILES_LEAST = 1_000
# Docker's default is 64 MiB, which a few data-loader workers fill.
SHM_WARN_BYTES = 512 * _MIB
# The memory that `import torch` takes by itself.
MEMORY_WARN_BYTES = 400 * _MIB
# Logs of several nodes are compared by time; signatures of S3 and Kerberos expire in minutes.
CLOCK_WARN_S = 2.0
CLOCK_ERROR_S = 300.0


@dataclass(frozen=True)
class Finding:
    """`code` is one of CODES, `nodes` are the nodes that it concerns."""

    code: str
    severity: str
    message: str
    hint: str
    nodes: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RankLayout:
    """How many ranks each node has, and whether all nodes are on one machine."""

    processes_per_node: int
    single_host: bool = False

    def ranks_per_machine(self, nodes: int) -> int:
        """How many ranks share a machine, if the job has this many nodes."""
        return self.processes_per_node * (nodes if self.single_host else 1)


# For the docs: code, severity, meaning.
CODES: tuple[tuple[str, str, str], ...] = (
    ("nccl_without_gpu", "error", "the job requests NCCL, but a node has no GPU"),
    (
        "torch_without_gpu",
        "error",
        "the job requests NCCL, but the environment's torch is a CPU build",
    ),
    (
        "ranks_share_gpu",
        "error with NCCL, otherwise a warning",
        "a node has more ranks than GPUs, or two nodes on one machine share a GPU",
    ),
    (
        "interface_missing",
        "error for the backend in use, otherwise a warning",
        "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that a node does not have",
    ),
    ("no_own_address", "error", "a node has only a loopback address"),
    ("address_shared", "error", "two machines have the same address"),
    ("ports_blocked", "error", "a node can't reach a port of another node"),
    ("preflight_timeout", "error", "a node did not finish the checks in time"),
    (
        "clocks_apart",
        "error from 300 s, a warning from 2 s",
        "a node's clock differs from node 0's",
    ),
    ("torch_versions_differ", "error", "nodes would import different versions of torch"),
    (
        "disk_short",
        "error below 64 MiB or 1,000 files, a warning below 2 GiB",
        "the disk of a node's scratch folder is almost full",
    ),
    ("shm_small", "warning below 512 MiB", "`/dev/shm` is too small for data-loader workers"),
    ("memory_short", "warning below 400 MiB a rank", "a node has too little memory available"),
    ("mtu_differs", "warning", "interfaces between the nodes have different MTUs"),
)


def run_checks(facts: Sequence[Facts], layout: RankLayout) -> list[Finding]:
    """All findings, errors first."""
    findings = [finding for check in _CHECKS for finding in check(facts, layout)]
    return sorted(findings, key=lambda finding: finding.severity != ERROR)


def backend_of(facts: Sequence[Facts]) -> str:
    """The backend of the ranks: as requested, otherwise the one that torch chooses."""
    requested = next((node.backend for node in facts if node.backend), "")
    return requested or (NCCL if facts and all(node.devices for node in facts) else "")


def node_names(facts: Iterable[Facts]) -> str:
    """`node 1 (10.0.0.2)`, or `nodes 0, 1`."""
    chosen = list(facts)
    if len(chosen) == 1:
        node = chosen[0]
        return f"node {node.node} ({node.address})" if node.address else f"node {node.node}"
    return "nodes " + ", ".join(str(node.node) for node in chosen)


def _finding(
    code: str, severity: str, nodes: Sequence[Facts], statement: str, hint: str
) -> Finding:
    message = f"{node_names(nodes)} {statement}"
    return Finding(code, severity, message, hint, tuple(node.node for node in nodes))


def _nccl_without_gpu(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    if not any(node.backend == NCCL for node in facts):
        return
    without_gpu = [node for node in facts if not node.devices]
    if without_gpu:
        yield _finding(
            "nccl_without_gpu",
            ERROR,
            without_gpu,
            f"{_have(without_gpu)} no GPU, but the job requests NCCL, which needs a GPU for "
            "each rank",
            "use gloo (`communication_backend: gloo`, or the variable that names the backend), run "
            "on a cluster with GPUs, or try the script with `--rehearse-on-cpu`",
        )
        return
    cpu_builds = [node for node in facts if node.torch and not node.torch_gpu]
    if cpu_builds:
        yield _finding(
            "torch_without_gpu",
            ERROR,
            cpu_builds,
            f"would import torch {cpu_builds[0].torch}, which is built without CUDA and NCCL",
            "install a GPU build in the job's environment",
        )


def _ranks_share_gpu(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    severity = ERROR if any(node.backend == NCCL for node in facts) else WARNING
    ranks = layout.processes_per_node
    if any(node.backend == GLOO for node in facts):
        return
    crowded = [node for node in facts if 0 < len(node.devices) < ranks]
    if crowded:
        gpus = len(crowded[0].devices)
        yield _finding(
            "ranks_share_gpu",
            severity,
            crowded,
            f"{_have(crowded)} {ranks} ranks but {gpus} {plural('GPU', gpus)}; NCCL refuses "
            "two ranks on one GPU",
            f"set `process_count_per_instance` to {gpus}, choose a size with {ranks} GPUs, or use "
            "gloo",
        )
        return
    node_by_gpu: dict[tuple[str, str], Facts] = {}
    for node in facts:
        for device in node.devices[:ranks]:
            other = node_by_gpu.setdefault((node.machine, device), node)
            if node.machine and other is not node:
                yield _finding(
                    "ranks_share_gpu",
                    severity,
                    [other, node],
                    f"share GPU {device} of one machine; NCCL refuses two ranks on one GPU",
                    "request fewer nodes, or a size with fewer GPUs",
                )
                return


def _interface_missing(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    backend = backend_of(facts)
    without_interface = [
        node for node in facts if not nccl_finds(node.nccl_names or "", node.interfaces)
    ]
    if without_interface:
        severity = ERROR if backend == NCCL else WARNING
        yield _interface(
            "NCCL_SOCKET_IFNAME", without_interface[0].nccl_names, severity, without_interface
        )
    without_interface = [
        node for node in facts if gloo_misses(node.gloo_names or "", node.interfaces)
    ]
    if without_interface:
        # Measured with torch 2.13: gloo fails also where no backend is named.
        severity = WARNING if backend == NCCL and without_interface[0].backend else ERROR
        yield _interface(
            "GLOO_SOCKET_IFNAME", without_interface[0].gloo_names, severity, without_interface
        )


def _interface(
    variable: str, value: str | None, severity: str, without_interface: Sequence[Facts]
) -> Finding:
    available = ", ".join(sorted(without_interface[0].interfaces)) or "none"
    effect = "" if severity == ERROR else "; this job does not seem to use it"
    return _finding(
        "interface_missing",
        severity,
        without_interface,
        f"{_have(without_interface)} no interface that matches `{variable}={value}`; "
        f"available: {available}{effect}",
        f"name an available interface, or remove `{variable}`: torchyard sets gloo's, and NCCL "
        "finds its own",
    )


def nccl_finds(setting: str, interfaces: Iterable[str]) -> bool:
    """Whether NCCL_SOCKET_IFNAME leaves an interface to use.

    The setting is a list of prefixes; `=` before it makes them whole names, `^` excludes them.

    Source: NCCL's documentation of NCCL_SOCKET_IFNAME.
    """
    if not setting:
        return True
    excluded = setting.startswith("^")
    pattern = setting[1:] if excluded else setting
    exact = pattern.startswith("=")
    # A name may be followed by a colon and a port.
    names = [word.partition(":")[0] for word in pattern[exact:].split(",") if word]

    def matches(name: str) -> bool:
        return any(name == word if exact else name.startswith(word) for word in names)

    return any(matches(name) != excluded for name in interfaces)


def gloo_misses(setting: str, interfaces: Iterable[str]) -> list[str]:
    """The missing interfaces among the names in GLOO_SOCKET_IFNAME, separated by commas."""
    available = set(interfaces)
    return [name for name in setting.split(",") if name and name not in available]


def _addresses(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    if layout.single_host or len(facts) == 1:
        return
    loopback_only = [node for node in facts if node.address.startswith("127.")]
    # An engine may have several nodes on one machine, each with a loopback address of its own.
    is_one_machine = len({node.network for node in facts}) == 1 and bool(facts[0].network)
    if loopback_only and not is_one_machine:
        yield _finding(
            "no_own_address",
            ERROR,
            loopback_only,
            f"{_have(loopback_only)} only a loopback address, which other machines can't reach",
            "give the machine or container an interface in the other nodes' network",
        )
        return
    node_by_address: dict[str, Facts] = {}
    for node in facts:
        other = node_by_address.setdefault(node.address, node)
        if other.network != node.network:
            yield Finding(
                "address_shared",
                ERROR,
                f"node {other.node} ({other.host}) and node {node.node} ({node.host}) are "
                f"different machines with the same address, {node.address}",
                "containers often get an address of a bridge that is local to their host: run them "
                "in the host's network, or in one that spans the hosts",
                (other.node, node.node),
            )
            return


def _torch_versions(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    with_torch = [node for node in facts if node.torch]
    versions = sorted({node.torch for node in with_torch})
    if len(versions) < 2:
        return
    listed = ", ".join(f"node {node.node} has {node.torch}" for node in with_torch[:8])
    yield Finding(
        "torch_versions_differ",
        ERROR,
        f"the nodes have different versions of torch: {listed}",
        "pin torch in the job's environment (`torch==…`), so that every node gets the same version",
        tuple(node.node for node in with_torch),
    )


def _disk(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    hint = "free disk space: `yard gc --explain` shows what can be deleted"
    full_disks = [node for node in facts if 0 <= node.disk_free_bytes < DISK_LEAST_BYTES]
    if full_disks:
        free = _size(full_disks[0].disk_free_bytes)
        statement = f"{_have(full_disks)} only {free} free on the disk of `scratch`"
        yield _finding("disk_short", ERROR, full_disks, statement, hint)
    short_of_files = [
        node for node in facts if 0 <= node.files_free < FILES_LEAST and node not in full_disks
    ]
    if short_of_files:
        statement = (
            f"can create only {short_of_files[0].files_free} more files on the disk of `scratch`"
        )
        yield _finding("disk_short", ERROR, short_of_files, statement, hint)
    short_of_space = [
        node for node in facts if DISK_LEAST_BYTES <= node.disk_free_bytes < DISK_WARN_BYTES
    ]
    if short_of_space:
        free = _size(short_of_space[0].disk_free_bytes)
        statement = f"{_have(short_of_space)} only {free} free on the disk of `scratch`"
        yield _finding("disk_short", WARNING, short_of_space, statement, hint)


def _shared_memory(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    small_shm = [node for node in facts if 0 <= node.shm_free_bytes < SHM_WARN_BYTES]
    if small_shm:
        free, total = _size(small_shm[0].shm_free_bytes), _size(small_shm[0].shm_bytes)
        yield _finding(
            "shm_small",
            WARNING,
            small_shm,
            f"{_have(small_shm)} {free} of {total} free in `/dev/shm`, which "
            "data-loader workers use to pass batches",
            "enlarge it: `--shm-size=8g` for a container, `mount -o remount,size=50% /dev/shm` "
            "otherwise; or load data without workers",
        )


def _memory(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    ranks = layout.ranks_per_machine(len(facts))
    low_memory = [node for node in facts if 0 <= node.memory_free_bytes < ranks * MEMORY_WARN_BYTES]
    if low_memory:
        yield _finding(
            "memory_short",
            WARNING,
            low_memory,
            f"{_have(low_memory)} {_size(low_memory[0].memory_free_bytes)} of memory available "
            f"for {ranks} {plural('rank', ranks)}; importing torch takes about "
            f"{_size(MEMORY_WARN_BYTES)} in each",
            "request fewer ranks per node, or stop other programs on that machine",
        )


def _mtu(facts: Sequence[Facts], layout: RankLayout) -> Iterable[Finding]:
    with_mtu = [node for node in facts if node.mtu > 0]
    if layout.single_host or len({node.mtu for node in with_mtu}) < 2:
        return
    listed = ", ".join(f"node {node.node} has {node.mtu}" for node in with_mtu[:8])
    yield Finding(
        "mtu_differs",
        WARNING,
        f"the interfaces between the nodes have different MTUs: {listed}",
        "large messages may be slow or hang: set the same MTU with `ip link set dev NAME mtu N`",
        tuple(node.node for node in with_mtu),
    )


def clock_finding(node: Facts, ahead_s: float, uncertainty_s: float) -> Finding | None:
    """The finding about a node whose clock is ahead of node 0's, or behind it if negative."""
    certain_s = abs(ahead_s) - uncertainty_s
    if certain_s < CLOCK_WARN_S:
        return None
    direction = "ahead of" if ahead_s > 0 else "behind"
    return _finding(
        "clocks_apart",
        ERROR if certain_s >= CLOCK_ERROR_S else WARNING,
        [node],
        f"has a clock that is {abs(ahead_s):.1f} s {direction} node 0's",
        "synchronize the clocks by NTP: `timedatectl set-ntp true`, or `chronyc makestep`",
    )


def _have(nodes: Sequence[Facts]) -> str:
    return "has" if len(nodes) == 1 else "have"


def _size(size_bytes: int) -> str:
    if size_bytes >= 10 * _GIB:
        return f"{size_bytes / _GIB:.0f} GiB"
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes // _MIB} MiB"


_CHECKS: tuple[Callable[[Sequence[Facts], RankLayout], Iterable[Finding]], ...] = (
    _nccl_without_gpu,
    _ranks_share_gpu,
    _interface_missing,
    _addresses,
    _torch_versions,
    _disk,
    _shared_memory,
    _memory,
    _mtu,
)
