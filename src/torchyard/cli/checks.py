"""Look at this machine as a place for jobs.

Owns: one function a check, each with what it found and what to do.
Leaves: printing to doctor.py.
Always: standard library only; nothing outlives a check; a check takes no longer than `_PATIENCE_S`.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from torchyard import embedded
from torchyard.base.errors import TorchyardError
from torchyard.base.http import Transport
from torchyard.base.settings import Settings

_PATIENCE_S = 10.0
_DISK_WRONG_GB, _DISK_NOTE_GB = 2, 20
_MEMORY_WRONG_GB, _MEMORY_NOTE_GB = 1, 4
_RENDEZVOUS_PORT = 6105
_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "beegfs"}
_CLOCK_S = 5.0

# In a process of its own: what a user namespace changes can't be taken back.
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


@dataclass(frozen=True)
class Finding:
    """`verdict`: ok; note, something works in a lesser way; wrong, jobs can't run."""

    check: str
    verdict: str
    found: str
    remedy: str = ""


def all_of(settings: Settings, **more: Callable[[], Finding]) -> list[Finding]:
    """
    Args:
        more: further checks by their names.
    """
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", python),
        ("uv", uv),
        ("home", lambda: home(settings.home)),
        ("disk", lambda: disk(settings.home)),
        ("links", lambda: links(settings.home)),
        ("memory", memory),
        ("ports", ports),
        ("gpu", gpu),
        ("namespaces", namespaces),
        ("packages", packages),
        ("containers", containers),
        ("git", git),
        ("server", lambda: server(settings)),
        ("clock", lambda: clock(settings)),
        *more.items(),
    ]
    return [_guarded(name, check) for name, check in checks]


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        what = f"could not be looked at ({type(error).__name__}: {error})"
        return Finding(name, "note", what, "look yourself; this check is ours to mend")


def python() -> Finding:
    version = platform.python_version()
    where = f"{version} at {sys.executable}, {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        remedy = "set TORCHYARD_URL to a server on Linux; jobs and the server run there only"
        return Finding("python", "note", where, remedy)
    return Finding("python", "ok", where)


def uv() -> Finding:
    """uv comes with torchyard; without it no environment is built."""
    found = _uv()
    if found is None:
        return Finding(
            "uv", "wrong", "not found", "install torchyard again with `pip install torchyard`"
        )
    ran = _run(found, "--version")
    if ran.returncode:
        return Finding("uv", "wrong", f"`{found}` fails: {_last(ran.stderr)}", "install uv again")
    return Finding("uv", "ok", f"{ran.stdout.strip()} at {found}")


def home(folder: Path) -> Finding:
    there = _nearest(folder)
    kind = _file_system(there)
    what = f"{folder} ({kind})"
    if not os.access(there, os.W_OK):
        remedy = "set TORCHYARD_HOME to a folder of your own"
        return Finding("home", "wrong", f"{folder} can't be written", remedy)
    if kind in _NETWORK_FILE_SYSTEMS:
        return Finding(
            "home",
            "wrong",
            f"{what} lies on a network file system, where SQLite's locks are not safe",
            "set TORCHYARD_HOME to a folder on a disk of this machine",
        )
    if kind == "tmpfs":
        return Finding("home", "note", f"{what} is gone after a restart", "set TORCHYARD_HOME")
    return Finding("home", "ok", what)


def disk(folder: Path) -> Finding:
    usage = shutil.disk_usage(_nearest(folder))
    free_gb = usage.free / 1e9
    what = f"{free_gb:.1f} GB free of {usage.total / 1e9:.1f} GB"
    remedy = f"free some, or set TORCHYARD_HOME; an environment with torch takes {_DISK_WRONG_GB}"
    remedy += " to 8 GB"
    if free_gb < _DISK_WRONG_GB:
        return Finding("disk", "wrong", what, remedy)
    return Finding("disk", "note", what, remedy) if free_gb < _DISK_NOTE_GB else _ok("disk", what)


def links(folder: Path) -> Finding:
    """Environments are hard links into uv's cache: quick and small, on one file system."""
    found = _uv()
    if found is None:
        return Finding("links", "note", "not looked at: no uv")
    cache = Path(_run(found, "cache", "dir").stdout.strip() or ".")
    here, there = _nearest(folder), _nearest(cache)
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
    return _ok("links", f"environments share the files of uv's cache, {cache}")


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
    what = f"{free:.1f} GB free of {total:.1f} GB, shared memory {shared:.1f} GB"
    if free < _MEMORY_WRONG_GB:
        return Finding("memory", "wrong", what, "end other programs: torch alone takes 0.5 GB")
    if free < _MEMORY_NOTE_GB:
        return Finding("memory", "note", what, "run fewer ranks at once than there are CPUs")
    if shared < 0.25:
        remedy = "give /dev/shm more, or use `num_workers=0` in data loaders"
        return Finding("memory", "note", what, remedy)
    return _ok("memory", what)


def ports() -> Finding:
    """A server and each job need free ports on loopback; a full or forbidden range has none."""
    try:
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
    except OSError as error:
        return Finding(
            "ports",
            "wrong",
            f"no free port on 127.0.0.1 ({error.strerror})",
            "see who holds them with `ss -tanp`; is the loopback interface up?",
        )
    for listener in held:
        listener.close()
    try:
        socket.create_server(("127.0.0.1", _RENDEZVOUS_PORT)).close()
    except OSError:
        what = f"free ones are there; {_RENDEZVOUS_PORT} is taken, so jobs meet at another"
        return _ok("ports", what)
    return _ok("ports", "free ones are there")


def gpu() -> Finding:
    tools = ("nvidia-smi", "rocm-smi", "xpu-smi")
    found = [tool for tool in tools if shutil.which(tool)]
    if not found:
        if os.path.exists("/proc/driver/nvidia/version"):
            remedy = "install nvidia-smi (the driver's tools), so that GPUs are counted"
            return Finding("gpu", "wrong", "a driver without its tools", remedy)
        return _ok("gpu", "none: jobs run on the CPU")
    tool = found[0]
    arguments = ("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    ran = _run(tool, *(arguments if tool == "nvidia-smi" else ()))
    lines = ran.stdout.strip().splitlines()
    if ran.returncode or not lines:
        said = _last(ran.stderr or ran.stdout)
        return Finding(
            "gpu", "wrong", f"`{tool}` fails: {said}", "mend the driver: reboot after an update"
        )
    if tool != "nvidia-smi":
        return _ok("gpu", f"{tool} answers")
    kinds = ", ".join(f"{lines.count(line)} x {line}" for line in dict.fromkeys(lines))
    return _ok("gpu", kinds)


def namespaces() -> Finding:
    """`ro_mount` is a read-only bind mount in a namespace of the job's own."""
    with tempfile.TemporaryDirectory(prefix="yard-doctor-") as folder:
        ran = _run(sys.executable, "-I", "-S", "-c", _NAMESPACES, folder)
    if ran.returncode == 0:
        return _ok("namespaces", "inputs in mode ro_mount are read-only mounts")
    return Finding(
        "namespaces",
        "note",
        f"not allowed ({_last(ran.stderr)}): ro_mount gives copies without write permission",
        "allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1`, and "
        "`kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu; or leave it so",
    )


def packages() -> Finding:
    """Where packages come from, and whether that answers."""
    found = _uv()
    if found is None:
        return Finding("packages", "note", "not looked at: no uv")
    pip = _run(sys.executable, "-m", "pip", "config", "list")
    names = [line.split("=", 1)[0] for line in pip.stdout.splitlines()]
    configured = " ".join(name for name in names if "index" in name or "find" in name)
    where = f"pip is configured ({configured})" if configured else "the default index"
    with tempfile.TemporaryDirectory(prefix="yard-doctor-") as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text("pip\n")
        if pip.returncode:
            ran = _run(found, "pip", "compile", "--quiet", "--no-deps", str(wanted))
        else:
            ran = _run(
                sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input",
                "--disable-pip-version-check", "--retries", "0", "--timeout", "5",
                "--dest", folder, "--requirement", str(wanted),
            )  # fmt: skip
    if ran.returncode:
        return Finding(
            "packages",
            "wrong",
            f"{where}; no package could be had: {_last(ran.stderr)[:200]}",
            "set an index that answers, with `pip config set global.index-url URL` or "
            "UV_DEFAULT_INDEX; environments that are built already go on working",
        )
    return _ok("packages", f"{where}; it answers")


def containers() -> Finding:
    """Only images and Dockerfiles need an engine; a client without one counts for nothing."""
    told = []
    for name, words in (
        ("podman", ("info", "--format", "{{.Version.Version}}")),
        ("docker", ("version", "--format", "{{.Server.Version}}")),
    ):
        found = shutil.which(name)
        if found is None:
            continue
        ran = _run(found, *words)
        if ran.returncode == 0:
            return _ok("containers", f"{name} {ran.stdout.strip()} at {found}")
        told.append(f"{found} does not work ({_last(ran.stderr)[:200]})")
    return Finding(
        "containers",
        "note",
        "; ".join(told) or "neither podman nor docker",
        "`apt-get install podman`, if environments are to be images or Dockerfiles",
    )


def git() -> Finding:
    if shutil.which("git") is None:
        return Finding(
            "git", "note", "not found: jobs don't record their commit", "install git if you use it"
        )
    return _ok("git", _run("git", "--version").stdout.strip())


def server(settings: Settings) -> Finding:
    running = None if settings.url else embedded.find(settings)
    url = settings.url or (running.url if running else "")
    if not url:
        return _ok("server", "none runs; the first command that needs one starts it")
    try:
        health = _health(url)
    except TorchyardError as error:
        remedy = "see `yard server logs`, then `yard server stop` and try again"
        if settings.url:
            remedy = "check TORCHYARD_URL, and that the server runs"
        return Finding("server", "wrong", error.message, remedy)
    from torchyard import __version__

    what = f"{health.get('version')} at {url}"
    if health.get("version") != __version__:
        return Finding(
            "server",
            "note",
            f"{what}; this command is {__version__}",
            "`yard server stop`: the next command starts one of its own version"
            if not settings.url
            else "install the server's version here",
        )
    return _ok("server", what)


def clock(settings: Settings) -> Finding:
    """A clock that is far off makes certificates and times of metrics wrong."""
    now = time.time()
    if not 1_735_689_600 < now < 4_102_444_800:
        stamp = time.strftime("%Y-%m-%d", time.gmtime(now))
        return Finding("clock", "wrong", f"it says {stamp}", "set it, best by NTP")
    if settings.url:
        transport = Transport(settings.url, "", timeout_s=_PATIENCE_S, ca_cert=settings.ca_cert)
        try:
            with transport.stream("/health") as answer:
                said = answer.headers.get("Date")
        except TorchyardError:
            said = None
        finally:
            transport.close()
        if said:
            off_s = time.time() - parsedate_to_datetime(said).timestamp()
            if abs(off_s) > _CLOCK_S:
                what = f"{abs(off_s):.0f} s {'before' if off_s > 0 else 'behind'} the server's"
                return Finding("clock", "note", what, "set both by NTP")
    return _ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %Z"))


def _ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)


def _health(url: str) -> dict[str, str]:
    transport = Transport(url, "", timeout_s=_PATIENCE_S)
    try:
        found: dict[str, str] = transport.get("/health")
        return found
    finally:
        transport.close()


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no end after {_PATIENCE_S:.0f} s")


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it says nothing"


def _nearest(folder: Path) -> Path:
    """The folder itself, or the first above it that is there."""
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


def _file_system(folder: Path) -> str:
    """The type of the mount that holds `folder`. Source: proc(5), /proc/<pid>/mountinfo."""
    real = os.path.realpath(folder)
    best, kind = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        place = before.split()[4].encode().decode("unicode_escape")
        inside = real == place or real.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, after.split()[0]
    return kind


def _cgroup_limit_gb() -> float | None:
    """What a container may use of the memory, when it is less than all."""
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(file).read_text()) / 1e9
        except (OSError, ValueError):
            continue
    return None
