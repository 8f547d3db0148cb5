"""How much of a machine is in use, and by whom.

Owns: reading CPU, memory, disk and network of the machine, of trees of processes, of a cgroup.
Leaves: when to read and what becomes of it to node/system_metrics.py; GPUs to gpu_use.py.
Always: all processes are read in one pass, whatever number of trees is asked for; what can't be
read is left out. Shares of time are over the time since the reading before.

Sources: proc(5); the kernel's admin-guide/cgroup-v2.rst, cgroup-v1/cpuacct.rst and memory.rst.
Figures that MLflow logs too have its names and units: a megabyte is a million bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

_MEGABYTE = 1e6
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
# Of `/proc/<pid>/stat`, counted from the field after the name, which may hold anything.
_PARENT, _CPU_TIMES, _STARTED, _RESIDENT = 1, slice(11, 15), 19, 21
_ENOUGH_BYTES = 2048


class Use(NamedTuple):
    """CPU time since the beginning, of ended children too, and memory now."""

    cpu_s: float
    memory_bytes: int


class _Process(NamedTuple):
    parent: int
    started: int
    use: Use


class MachineUse:
    """The use of the whole machine; `disk` is any folder of the disk in question.

    Network counts from the first reading on, and leaves out the loopback.
    """

    def __init__(self, disk: Path, proc: Path = _PROC) -> None:
        self._disk = disk
        self._proc = proc
        self._times = _cpu_times(proc)
        self._network = _network_bytes(proc)

    def read(self) -> dict[str, float]:
        return {**self._cpu(), **_memory(self._proc), **_disk_space(self._disk), **self._traffic()}

    def _cpu(self) -> dict[str, float]:
        before, self._times = self._times, _cpu_times(self._proc)
        if before is None or self._times is None:
            return {}
        busy, total = (now - then for now, then in zip(self._times, before))
        return {"cpu_utilization_percentage": _percentage(busy, total)} if total > 0 else {}

    def _traffic(self) -> dict[str, float]:
        now = _network_bytes(self._proc)
        if now is None or self._network is None:
            return {}
        received, sent = (max(0, new - old) for new, old in zip(now, self._network))
        return {
            "network_receive_megabytes": _megabytes(received),
            "network_transmit_megabytes": _megabytes(sent),
        }


class TreeUse:
    """The use of trees of processes, each known by the pid of its root.

    Memory that several processes of a tree share counts once for each.
    """

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._started: dict[int, int] = {}

    def read(self, roots: Iterable[int]) -> dict[int, Use]:
        """By root; without those that have ended."""
        everyone = _processes(self._proc)
        children: dict[int, list[int]] = {}
        for pid, process in everyone.items():
            children.setdefault(process.parent, []).append(pid)
        uses = {}
        for root in roots:
            first = everyone.get(root)
            # The number of a process that has ended may be another's by now.
            if first and self._started.setdefault(root, first.started) == first.started:
                uses[root] = _sum(everyone[pid].use for pid in _tree(root, children))
        return uses


class GroupUse:
    """The use of one cgroup, which is a folder in each tree of cgroups that has a part in it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def read(self) -> tuple[Optional[float], Optional[int]]:
        """CPU seconds and bytes of memory; None where no controller counts them."""
        return self._first_cpu_s(), self._first_memory_bytes()

    def _first_cpu_s(self) -> Optional[float]:
        for folder in self._folders:
            micros = _keyed(folder / "cpu.stat").get("usage_usec")
            if micros is not None:
                return micros / 1e6
            nanos = _number(folder / "cpuacct.usage")
            if nanos is not None:
                return nanos / 1e9
        return None

    def _first_memory_bytes(self) -> Optional[int]:
        """Without pages of files that the kernel takes back first, as Kubernetes counts it."""
        for folder in self._folders:
            for used, idle in (
                ("memory.current", "inactive_file"),
                ("memory.usage_in_bytes", "total_inactive_file"),
            ):
                size_bytes = _number(folder / used)
                if size_bytes is not None:
                    return max(0, size_bytes - _keyed(folder / "memory.stat").get(idle, 0))
        return None


class Shares:
    """CPU time as shares of one core, over the time since it was told last."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def percentage(self, who: str, cpu_s: float) -> Optional[float]:
        """None the first time; 100 is one core."""
        now = time.monotonic()
        before = self._before.get(who)
        self._before[who] = (now, cpu_s)
        if before is None or now <= before[0]:
            return None
        # A process that was adopted by another takes its time along.
        return _percentage(max(0.0, cpu_s - before[1]), now - before[0])


def _processes(proc: Path) -> dict[int, _Process]:
    processes = {}
    folder = str(proc)
    for name in os.listdir(folder):
        if not name.isdigit():
            continue
        try:
            file = os.open(f"{folder}/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # it has ended
        try:
            text = os.read(file, _ENOUGH_BYTES)
        except OSError:
            continue
        finally:
            os.close(file)
        fields = text[text.rfind(b")") + 2 :].split()
        if len(fields) <= _RESIDENT:
            continue
        cpu_s = sum(map(int, fields[_CPU_TIMES])) / _TICKS_PER_S
        use = Use(cpu_s, max(0, int(fields[_RESIDENT])) * _PAGE_BYTES)
        processes[int(name)] = _Process(int(fields[_PARENT]), int(fields[_STARTED]), use)
    return processes


def _tree(root: int, children: Mapping[int, Sequence[int]]) -> list[int]:
    pids = [root]
    for pid in pids:
        pids.extend(children.get(pid, ()))
    return pids


def _sum(uses: Iterable[Use]) -> Use:
    cpu_s, memory_bytes = 0.0, 0
    for use in uses:
        cpu_s, memory_bytes = cpu_s + use.cpu_s, memory_bytes + use.memory_bytes
    return Use(cpu_s, memory_bytes)


def _cpu_times(proc: Path) -> Optional[tuple[int, int]]:
    """(busy, total) of all cores together."""
    # user nice system idle iowait irq softirq steal; guests count as user, too.
    times = [int(word) for word in _text(proc / "stat").partition("\n")[0].split()[1:9]]
    if len(times) < 5:
        return None
    total = sum(times)
    return total - times[3] - times[4], total


def _memory(proc: Path) -> dict[str, float]:
    sizes = {}
    for line in _text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            sizes[name] = int(rest.split()[0]) * 1024
    if len(sizes) < 2:
        return {}
    used = sizes["MemTotal"] - sizes["MemAvailable"]
    return {
        "system_memory_usage_megabytes": _megabytes(used),
        "system_memory_usage_percentage": _percentage(used, sizes["MemTotal"]),
    }


def _disk_space(folder: Path) -> dict[str, float]:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return {}
    used, free = disk.f_blocks - disk.f_bfree, disk.f_bavail
    return {
        "disk_usage_percentage": _percentage(used, used + free) if used + free else 0.0,
        "disk_usage_megabytes": _megabytes(used * disk.f_frsize),
        "disk_available_megabytes": _megabytes(free * disk.f_frsize),
    }


def _network_bytes(proc: Path) -> Optional[tuple[int, int]]:
    """(received, sent) by all interfaces but the loopback since they came up."""
    received = sent = 0
    lines = _text(proc / "net" / "dev").splitlines()[2:]
    for line in lines:
        name, _, rest = line.partition(":")
        counts = rest.split()
        if name.strip() != "lo" and len(counts) > 8:
            received, sent = received + int(counts[0]), sent + int(counts[8])
    return (received, sent) if lines else None


def _keyed(file: Path) -> dict[str, int]:
    """A file of lines with a name and a number."""
    numbers = {}
    for line in _text(file).splitlines():
        name, _, number = line.partition(" ")
        if number.isdigit():
            numbers[name] = int(number)
    return numbers


def _number(file: Path) -> Optional[int]:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""


def _megabytes(size_bytes: float) -> float:
    return round(size_bytes / _MEGABYTE, 3)


def _percentage(part: float, total: float) -> float:
    return round(100 * part / total, 2)
