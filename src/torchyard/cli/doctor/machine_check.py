"""Check whether this machine can run jobs: folders, memory, ports, GPUs, namespaces.

Owns: one function per check, which returns its result and a remedy.
Leaves: programs to programs_check.py, the server to server_check.py, printing to command.py.
Always: standard library only; nothing outlives a check.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from torchyard.base import machine
from torchyard.cli.doctor.findings import Finding, last_line, ok, run, uv_program

_DISK_WRONG_GB, _DISK_NOTE_GB = 2, 20
_MEMORY_WRONG_GB, _MEMORY_NOTE_GB = 1, 4
_RENDEZVOUS_PORT = 6105

# In a separate process: entering a user namespace can't be undone.
_NAMESPACES = """
import ctypes, os, sys
user, group = os.getuid(), os.getgid()
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000 | 0x00020000):  # CLONE_NEWUSER | CLONE_NEWNS
    sys.exit(os.strerror(ctypes.get_errno()))
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"0 {user} 1")
open("/proc/self/gid_map", "w").write(f"0 {group} 1")
folder = os.fsencode(sys.argv[1])
# MS_BIND, then MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV.
for flags in (0x1000, 0x1000 | 0x20 | 0x1 | 0x2 | 0x4):
    if libc.mount(folder, folder, None, flags, None):
        sys.exit(os.strerror(ctypes.get_errno()))
try:
    open(os.path.join(folder, b"x"), "w")
except OSError:
    sys.exit(0)
sys.exit("a read-only mount could be written")
"""


def home(folder: Path) -> Finding:
    there = _nearest(folder)
    kind = machine.file_system(there)
    description = f"{folder} ({kind})"
    if not os.access(there, os.W_OK):
        remedy = "set TORCHYARD_HOME to a folder you can write to"
        return Finding("home", "wrong", f"{folder} can't be written", remedy)
    if kind in machine.NETWORK_FILE_SYSTEMS:
        return Finding(
            "home",
            "wrong",
            f"{description} is on a network file system, where SQLite's locks are not safe",
            "set TORCHYARD_HOME to a folder on a disk of this machine",
        )
    mode = folder.stat().st_mode & 0o777 if folder.is_dir() else 0o700
    if mode & 0o077:
        return Finding(
            "home",
            "wrong",
            f"{description} is open to other users of this machine (mode {mode:04o})",
            f"type `chmod 700 {folder}`",
        )
    if kind == "tmpfs":
        return Finding("home", "note", f"{description} is lost on restart", "set TORCHYARD_HOME")
    return Finding("home", "ok", description)


def disk(folder: Path) -> Finding:
    usage = shutil.disk_usage(_nearest(folder))
    free_gb = usage.free / 1e9
    description = f"{free_gb:.1f} GB free of {usage.total / 1e9:.1f} GB"
    remedy = f"free some, or move TORCHYARD_HOME; an environment with torch takes {_DISK_WRONG_GB}"
    remedy += " to 8 GB"
    if free_gb < _DISK_WRONG_GB:
        return Finding("disk", "wrong", description, remedy)
    return (
        Finding("disk", "note", description, remedy)
        if free_gb < _DISK_NOTE_GB
        else ok("disk", description)
    )


def links(folder: Path) -> Finding:
    """Environments are hard links into uv's cache, which needs a common file system."""
    uv = uv_program()
    if uv is None:
        return Finding("links", "note", "not checked: no uv")
    cache = Path(run(uv, "cache", "dir").stdout.strip() or ".")
    here, there = _nearest(folder), _nearest(cache)
    try:
        return _linked(here, there, cache, folder)
    except OSError as error:
        return Finding("links", "note", f"not checked: `{error.filename}`: {error.strerror}")


def _linked(here: Path, there: Path, cache: Path, folder: Path) -> Finding:
    with tempfile.TemporaryDirectory(prefix=".yard-doctor-", dir=there) as source:
        with tempfile.TemporaryDirectory(prefix=".yard-doctor-", dir=here) as target:
            (Path(source) / "file").touch()
            try:
                os.link(Path(source) / "file", Path(target) / "file")
            except OSError as error:
                return Finding(
                    "links",
                    "note",
                    f"no hard links from uv's cache `{cache}` to `{folder}` ({error.strerror}): "
                    "environments are copied",
                    "set UV_CACHE_DIR to a folder on the file system of TORCHYARD_HOME",
                )
    return ok("links", f"environments share the files of uv's cache, {cache}")


def memory() -> Finding:
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        values[name] = int(rest.split()[0]) / 1e6
    free, total = values["MemAvailable"], values["MemTotal"]
    limit = _cgroup_limit_gb()
    if limit is not None and limit < total:
        total, free = limit, min(free, limit)
    shared = shutil.disk_usage("/dev/shm").total / 1e9 if os.path.isdir("/dev/shm") else 0.0
    description = f"{free:.1f} GB free of {total:.1f} GB, shared memory {shared:.1f} GB"
    if free < _MEMORY_WRONG_GB:
        return Finding(
            "memory", "wrong", description, "close other programs: torch alone takes 0.5 GB"
        )
    if free < _MEMORY_NOTE_GB:
        return Finding("memory", "note", description, "run fewer ranks at once than there are CPUs")
    if shared < 0.25:
        remedy = "enlarge /dev/shm, or use `num_workers=0` in data loaders"
        return Finding("memory", "note", description, remedy)
    return ok("memory", description)


def ports() -> Finding:
    """The server and each job need free ports on loopback."""
    try:
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
    except OSError as error:
        return Finding(
            "ports",
            "wrong",
            f"no free port on 127.0.0.1 ({error.strerror})",
            "list who uses them with `ss -tanp`, and check that the loopback interface is up",
        )
    for listener in listeners:
        listener.close()
    try:
        socket.create_server(("127.0.0.1", _RENDEZVOUS_PORT)).close()
    except OSError:
        description = (
            f"available; {_RENDEZVOUS_PORT} is in use, so jobs use another for their rendezvous"
        )
        return ok("ports", description)
    return ok("ports", "available")


def gpu() -> Finding:
    tools = ("nvidia-smi", "rocm-smi", "xpu-smi")
    available = [tool for tool in tools if shutil.which(tool)]
    if not available:
        if os.path.exists("/proc/driver/nvidia/version"):
            remedy = "install nvidia-smi (the driver's tools) so that GPUs are detected"
            return Finding("gpu", "wrong", "a driver without its tools", remedy)
        return ok("gpu", "none: jobs run on the CPU")
    tool = available[0]
    arguments = ("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    ran = run(tool, *(arguments if tool == "nvidia-smi" else ()))
    lines = ran.stdout.strip().splitlines()
    if ran.returncode or not lines:
        message = last_line(ran.stderr or ran.stdout)
        return Finding(
            "gpu",
            "wrong",
            f"`{tool}` fails: {message}",
            "repair the driver; after an update, reboot",
        )
    if tool != "nvidia-smi":
        return ok("gpu", f"{tool} answers")
    kinds = ", ".join(f"{lines.count(line)} x {line}" for line in dict.fromkeys(lines))
    return ok("gpu", kinds)


def namespaces() -> Finding:
    """`ro_mount` is a read-only bind mount in the job's own namespace."""
    with tempfile.TemporaryDirectory(prefix="yard-doctor-") as folder:
        ran = run(sys.executable, "-I", "-S", "-c", _NAMESPACES, folder)
    if ran.returncode == 0:
        return ok("namespaces", "inputs in mode ro_mount are read-only mounts")
    return Finding(
        "namespaces",
        "note",
        f"not allowed ({last_line(ran.stderr)}): ro_mount makes copies without write permission",
        "allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1`, and "
        "`kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu; or accept the copies",
    )


def _nearest(folder: Path) -> Path:
    """The folder itself, or its nearest ancestor that exists."""
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


def _cgroup_limit_gb() -> float | None:
    """The container's memory limit, if there is one."""
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(file).read_text()) / 1e9
        except (OSError, ValueError):
            continue
    return None
