"""What keeps the ranks of a job from meeting, seen in what their nodes know of themselves.

Owns: the checks and their thresholds, the words of each finding, the one table of codes.
Leaves: gathering facts to node_facts.py, connections between nodes to links.py.
Always: pure functions of the facts, so that every node finds the same; an unknown fact is no
finding. An error is what the ranks would fail or hang by; all else is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torchyard.worker.preflight.node_facts import GLOO, NCCL, Facts

ERROR, WARNING = "error", "warning"
_MIB, _GIB = 1 << 20, 1 << 30
# An empty checkpoint folder, logs and a thin environment take less; training takes more.
DISK_LEAST_BYTES = 64 * _MIB
DISK_WARN_BYTES = 2 * _GIB
FILES_LEAST = 1_000
# Docker's default is 64 MiB, which a few data-loader workers fill.
SHM_WARN_BYTES = 512 * _MIB
# What `import torch` alone takes of memory.
MEMORY_WARN_BYTES = 400 * _MIB
# Lines of several nodes are read side by side; signatures of S3 and Kerberos end at minutes.
CLOCK_WARN_S = 2.0
CLOCK_ERROR_S = 300.0


@dataclass(frozen=True)
class Finding:
    """`code` is one of TABLE, `nodes` are those it is about."""

    code: str
    severity: str
    message: str
    hint: str
    nodes: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Asked:
    """Of the job: ranks on each node, and whether its nodes are one machine's."""

    processes_per_node: int
    single_host: bool = False

    def ranks_beside(self, nodes: int) -> int:
        """How many ranks share a machine."""
        return self.processes_per_node * (nodes if self.single_host else 1)


# For the docs: what is looked at, and what it is when found.
TABLE: tuple[tuple[str, str, str], ...] = (
    ("nccl_without_gpu", "error", "NCCL is asked for, and a node has no GPU"),
    ("torch_without_gpu", "error", "NCCL is asked for, and the environment's torch is a CPU build"),
    (
        "ranks_share_gpu",
        "error under NCCL, else a warning",
        "a node has more ranks than GPUs, or two nodes of one machine have one GPU",
    ),
    (
        "interface_missing",
        "error for the backend that is used, else a warning",
        "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that a node has not",
    ),
    ("no_own_address", "error", "a node has no address but loopback"),
    ("address_shared", "error", "two machines have one address"),
    ("ports_blocked", "error", "a node can't reach another one's port"),
    ("preflight_timeout", "error", "a node did not get done with these checks"),
    ("clocks_apart", "error from 300 s, a warning from 2 s", "a clock differs from node 0's"),
    ("torch_versions_differ", "error", "nodes would import different versions of torch"),
    (
        "disk_short",
        "error below 64 MiB or 1,000 files, a warning below 2 GiB",
        "the disk of a node's scratch folder is full",
    ),
    ("shm_small", "warning below 512 MiB", "`/dev/shm` is too small for data-loader workers"),
    ("memory_short", "warning below 400 MiB a rank", "a node has too little memory available"),
    ("mtu_differs", "warning", "interfaces between the nodes have different MTUs"),
    ("script_asks_nccl", "warning", "script or command names NCCL, and there is no GPU"),
)


def look(facts: Sequence[Facts], asked: Asked) -> list[Finding]:
    """Every finding, errors first."""
    found = [finding for check in _CHECKS for finding in check(facts, asked)]
    return sorted(found, key=lambda finding: finding.severity != ERROR)


def backend_of(facts: Sequence[Facts]) -> str:
    """What ranks talk by: as asked, else what torch takes by itself."""
    asked = next((one.backend for one in facts if one.backend), "")
    return asked or (NCCL if facts and all(one.devices for one in facts) else "")


def named(facts: Iterable[Facts]) -> str:
    """`node 1 (10.0.0.2)`, or `nodes 0, 1`."""
    chosen = list(facts)
    if len(chosen) == 1:
        one = chosen[0]
        return f"node {one.node} ({one.address})" if one.address else f"node {one.node}"
    return "nodes " + ", ".join(str(one.node) for one in chosen)


def _found(code: str, severity: str, about: Sequence[Facts], says: str, hint: str) -> Finding:
    message = f"{named(about)} {says}"
    return Finding(code, severity, message, hint, tuple(one.node for one in about))


def _nccl_without_gpu(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    if not any(one.backend == NCCL for one in facts):
        return
    without = [one for one in facts if not one.devices]
    if without:
        verb = "has" if len(without) == 1 else "have"
        yield _found(
            "nccl_without_gpu",
            ERROR,
            without,
            f"{verb} no GPU, and the job asks for NCCL, which needs one for each rank",
            "ask for gloo (`communication_backend: gloo`, or the variable that names the backend), "
            "run on a cluster with GPUs, or try the script with `--rehearse-on-cpu`",
        )
        return
    cpu_builds = [one for one in facts if one.torch and not one.torch_gpu]
    if cpu_builds:
        yield _found(
            "torch_without_gpu",
            ERROR,
            cpu_builds,
            f"would import torch {cpu_builds[0].torch}, which is built without GPUs and NCCL",
            "name a GPU build in the environment of the job",
        )


def _ranks_share_gpu(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    severity = ERROR if any(one.backend == NCCL for one in facts) else WARNING
    ranks = asked.processes_per_node
    if any(one.backend == GLOO for one in facts):
        return
    crowded = [one for one in facts if 0 < len(one.devices) < ranks]
    if crowded:
        gpus = len(crowded[0].devices)
        yield _found(
            "ranks_share_gpu",
            severity,
            crowded,
            f"{_has(crowded)} {ranks} ranks and {gpus} GPU{'s' * (gpus > 1)}; NCCL refuses two "
            "ranks on one GPU",
            f"set `process_count_per_instance` to {gpus}, take a size with {ranks} GPUs, or ask "
            "for gloo",
        )
        return
    holders: dict[tuple[str, str], Facts] = {}
    for one in facts:
        for device in one.devices[:ranks]:
            other = holders.setdefault((one.machine, device), one)
            if one.machine and other is not one:
                yield _found(
                    "ranks_share_gpu",
                    severity,
                    [other, one],
                    f"are on one machine and both have its GPU {device}; NCCL refuses two ranks "
                    "on one GPU",
                    "ask for fewer nodes, or for a size whose GPUs the machine has that often",
                )
                return


def _interface_missing(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    backend = backend_of(facts)
    lacking = [one for one in facts if not nccl_finds(one.nccl_names or "", one.interfaces)]
    if lacking:
        severity = ERROR if backend == NCCL else WARNING
        yield _interface("NCCL_SOCKET_IFNAME", lacking[0].nccl_names, severity, lacking)
    lacking = [one for one in facts if gloo_misses(one.gloo_names or "", one.interfaces)]
    if lacking:
        # Measured with torch 2.13: gloo fails also where no backend is named.
        severity = WARNING if backend == NCCL and lacking[0].backend else ERROR
        yield _interface("GLOO_SOCKET_IFNAME", lacking[0].gloo_names, severity, lacking)


def _interface(
    variable: str, value: str | None, severity: str, lacking: Sequence[Facts]
) -> Finding:
    there = ", ".join(sorted(lacking[0].interfaces)) or "none"
    effect = "" if severity == ERROR else "; this job does not use it, as far as can be seen"
    return _found(
        "interface_missing",
        severity,
        lacking,
        f"{_has(lacking)} no interface that `{variable}={value}` means; there: {there}{effect}",
        f"name one that is there, or leave `{variable}` out: torchyard names gloo's, and NCCL "
        "finds its own",
    )


def nccl_finds(written: str, interfaces: Iterable[str]) -> bool:
    """Whether NCCL_SOCKET_IFNAME leaves an interface to use: prefixes, `=` for whole names, `^`
    for all others.

    Source: NCCL's documentation of NCCL_SOCKET_IFNAME.
    """
    if not written:
        return True
    without = written.startswith("^")
    rest = written[1:] if without else written
    whole = rest.startswith("=")
    # A name may have a port behind a colon.
    words = [word.partition(":")[0] for word in rest[whole:].split(",") if word]

    def meant(name: str) -> bool:
        return any(name == word if whole else name.startswith(word) for word in words)

    return any(meant(name) != without for name in interfaces)


def gloo_misses(written: str, interfaces: Iterable[str]) -> list[str]:
    """Of the names in GLOO_SOCKET_IFNAME, whole and separated by commas, those that are missing."""
    there = set(interfaces)
    return [name for name in written.split(",") if name and name not in there]


def _addresses(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    if asked.single_host or len(facts) == 1:
        return
    alone = [one for one in facts if one.address.startswith("127.")]
    if alone:
        yield _found(
            "no_own_address",
            ERROR,
            alone,
            f"{_has(alone)} no address but loopback, which other machines can't reach",
            "give the machine or container an interface in the network of the other nodes",
        )
        return
    first: dict[str, Facts] = {}
    for one in facts:
        other = first.setdefault(one.address, one)
        if other.network != one.network:
            yield Finding(
                "address_shared",
                ERROR,
                f"node {other.node} ({other.host}) and node {one.node} ({one.host}) are different "
                f"machines, and both have the address {one.address}",
                "containers often have the address of a bridge that each host has for itself: run "
                "them in the network of their hosts, or in one that spans these",
                (other.node, one.node),
            )
            return


def _torch_versions(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    having = [one for one in facts if one.torch]
    versions = sorted({one.torch for one in having})
    if len(versions) < 2:
        return
    told = ", ".join(f"node {one.node} has {one.torch}" for one in having[:8])
    yield Finding(
        "torch_versions_differ",
        ERROR,
        f"the nodes have different versions of torch: {told}",
        "pin torch in the environment of the job (`torch==…`), so that every node gets the same",
        tuple(one.node for one in having),
    )


def _disk(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    hint = "make room: `yard gc --explain` says what can go"
    full = [one for one in facts if 0 <= one.disk_free_bytes < DISK_LEAST_BYTES]
    if full:
        says = f"{_has(full)} {_size(full[0].disk_free_bytes)} left on the disk of `scratch`"
        yield _found("disk_short", ERROR, full, says, hint)
    no_files = [one for one in facts if 0 <= one.files_free < FILES_LEAST and one not in full]
    if no_files:
        says = f"can make only {no_files[0].files_free} more files on the disk of `scratch`"
        yield _found("disk_short", ERROR, no_files, says, hint)
    short = [one for one in facts if DISK_LEAST_BYTES <= one.disk_free_bytes < DISK_WARN_BYTES]
    if short:
        says = f"{_has(short)} only {_size(short[0].disk_free_bytes)} left on the disk of `scratch`"
        yield _found("disk_short", WARNING, short, says, hint)


def _shared_memory(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    small = [one for one in facts if 0 <= one.shm_free_bytes < SHM_WARN_BYTES]
    if small:
        left, most = _size(small[0].shm_free_bytes), _size(small[0].shm_bytes)
        yield _found(
            "shm_small",
            WARNING,
            small,
            f"{_has(small)} {left} of {most} left in `/dev/shm`, through which data-loader workers "
            "hand over batches",
            "give the container more (`--shm-size=8g`), remount it (`mount -o remount,size=50% "
            "/dev/shm`), or load data without workers",
        )


def _memory(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    ranks = asked.ranks_beside(len(facts))
    short = [one for one in facts if 0 <= one.memory_free_bytes < ranks * MEMORY_WARN_BYTES]
    if short:
        yield _found(
            "memory_short",
            WARNING,
            short,
            f"{_has(short)} {_size(short[0].memory_free_bytes)} of memory available for "
            f"{ranks} rank{'s' * (ranks > 1)}; importing torch takes about "
            f"{_size(MEMORY_WARN_BYTES)} each",
            "ask for fewer ranks on a node, or end what else runs there",
        )


def _mtu(facts: Sequence[Facts], asked: Asked) -> Iterable[Finding]:
    known = [one for one in facts if one.mtu > 0]
    if asked.single_host or len({one.mtu for one in known}) < 2:
        return
    told = ", ".join(f"node {one.node} has {one.mtu}" for one in known[:8])
    yield Finding(
        "mtu_differs",
        WARNING,
        f"the interfaces between the nodes have different MTUs: {told}",
        "large messages may hang or be slow: set them equal with `ip link set dev NAME mtu N`",
        tuple(one.node for one in known),
    )


def clock_finding(one: Facts, apart_s: float, sure_to_s: float) -> Finding | None:
    """Of a node whose clock is `apart_s` ahead of node 0's, or behind when negative."""
    least_s = abs(apart_s) - sure_to_s
    if least_s < CLOCK_WARN_S:
        return None
    way = "ahead of" if apart_s > 0 else "behind"
    return _found(
        "clocks_apart",
        ERROR if least_s >= CLOCK_ERROR_S else WARNING,
        [one],
        f"has a clock {abs(apart_s):.1f} s {way} node 0's",
        "set the clocks by NTP: `timedatectl set-ntp true`, or `chronyc makestep`",
    )


def _has(about: Sequence[Facts]) -> str:
    return "has" if len(about) == 1 else "have"


def _size(size_bytes: int) -> str:
    if size_bytes >= 10 * _GIB:
        return f"{size_bytes / _GIB:.0f} GiB"
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes // _MIB} MiB"


_CHECKS: tuple[Callable[[Sequence[Facts], Asked], Iterable[Finding]], ...] = (
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
