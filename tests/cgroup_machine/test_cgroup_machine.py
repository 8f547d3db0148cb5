"""Limits by cgroups of version 2, on a kernel of their own: a small virtual machine.

The machine that runs the tests often has cgroups of version 1, or none that it may write to. QEMU
starts Debian's kernel with this machine's Python in an initial file system; `make test-cgroups`
installs both.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

import torchyard

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

_HERE = Path(__file__).parent
_PROGRAMS = ("bash", "mount", "mkdir", "chown", "sleep", "find", "wc", "setpriv", "python3")
_PYTHON = "/usr/bin/python3"
_NOT_NEEDED = ("test", "idlelib", "lib2to3", "dist-packages", "__pycache__")
_HELD = {"held": 2, "missing": 0, "bomb": 9, "refused": True, "eater": -9, "kills": 1, "left": 0}
_NOT_HELD = {
    "held": 0,
    "missing": 2,
    "bomb": 0,
    "refused": False,
    "eater": 0,
    "kills": 0,
    "left": 0,
}


def _kernel() -> Path:
    kernels = sorted(glob.glob(os.environ.get("TORCHYARD_TEST_KERNEL", "/boot/vmlinuz-*")))
    if not kernels or shutil.which("qemu-system-x86_64") is None:
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail("no QEMU or kernel here: `make test-cgroups` installs them")
        pytest.skip("no QEMU or kernel here")
    return Path(kernels[-1])


def _copy_program(name: str, root: Path) -> None:
    program = os.path.realpath(_PYTHON if name == "python3" else shutil.which(name) or name)
    shutil.copy(program, root / "bin" / name)
    _copy_libraries(program, root)


def _copy_libraries(program: str, root: Path) -> None:
    listing = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(", listing):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(library, target)


def _fill(root: Path) -> None:
    for name in ("bin", "proc", "sys", "dev", "tmp", "src"):
        (root / name).mkdir(parents=True)
    for name in _PROGRAMS:
        _copy_program(name, root)
    query = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    answer = subprocess.run([_PYTHON, "-c", query], capture_output=True, text=True, check=True)
    library = Path(answer.stdout.strip())
    ignore = shutil.ignore_patterns(*_NOT_NEEDED, "config-*")
    shutil.copytree(library, root / str(library).lstrip("/"), ignore=ignore)
    for module in library.glob("lib-dynload/_ctypes*.so"):
        _copy_libraries(str(module), root)
    package = Path(torchyard.__file__).parent
    for name in ("worker", "shared"):
        shutil.copytree(package / name, root / "src" / "torchyard" / name)
    shutil.copy(package / "__init__.py", root / "src" / "torchyard")
    shutil.copy(_HERE / "attempt.py", root)
    shutil.copy(_HERE / "init.sh", root / "init")
    (root / "init").chmod(0o755)


def _pack(root: Path, target: Path) -> None:
    """As the kernel unpacks it. Source: the kernel's driver-api/early-userspace/buffer-format."""
    with gzip.open(target, "wb", 1) as archive:
        paths = [path.relative_to(root) for path in sorted(root.rglob("*"))]
        for number, name in enumerate([*map(str, paths), "TRAILER!!!"], 1):
            mode, content = 0, b""
            if name != "TRAILER!!!":
                mode = (root / name).lstat().st_mode
            if stat.S_ISLNK(mode):
                content = os.readlink(root / name).encode()
            elif stat.S_ISREG(mode):
                content = (root / name).read_bytes()
            fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
            head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
            archive.write(head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4))


def test_limits_hold_wherever_a_cgroup_is_delegated(tmp_path: Path) -> None:
    kernel = _kernel()
    _fill(tmp_path / "root")
    _pack(tmp_path / "root", tmp_path / "initrd")
    done = subprocess.run(
        ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max,-la57", "-m", "1024", "-smp", "2",
         "-nographic", "-no-reboot", "-nic", "none", "-kernel", str(kernel),
         "-initrd", str(tmp_path / "initrd"), "-append", "console=ttyS0 panic=-1 rdinit=/init"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=500,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    outcomes: dict[str, Any] = {}
    for line in lines:
        outcome = json.loads(line.partition(" ")[2])
        outcomes[outcome.pop("name")] = outcome
    assert outcomes == {
        "root": _HELD,
        "unit": _HELD,
        # Without DelegateSubgroup nothing holds, and nothing is said to.
        "old-systemd": _NOT_HELD,
        "own-cgroup": _HELD,
        "runner": _HELD,
        "root-in-session": _HELD,
    }, done.stdout[-3000:]
    assert "LEFT 0" in done.stdout
