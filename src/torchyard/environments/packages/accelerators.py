"""What this machine computes on, and which torch fits it.

Owns: finding a GPU by its vendor's tool; the builds of torch that the machine's own package
sources offer, and what each is for; which packages of a lock are for GPUs.
Leaves: choosing one of them to lock.py.
Always: a machine whose tools list no device counts as CPU.
"""

from __future__ import annotations

import base64
import functools
import platform
import re
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Collection, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from torchyard.environments.packages.machine_config import MachineConfig
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.types import Accelerator

# Each prints one line per device.
_TOOLS: tuple[tuple[Accelerator, tuple[str, ...], str], ...] = (
    ("cuda", ("nvidia-smi", "-L"), r"^GPU \d+:"),
    ("rocm", ("rocm-smi", "--showid"), r"^GPU\[\d+\]"),
)
# Pure Python and a few kilobytes: libraries use it to find out whether there is a GPU.
_HARMLESS = ("nvidia-ml-py", "nvidia-ml-py3")
_WHEEL = re.compile(
    r"torch-(?P<version>[\w.]+\+(?:cpu|cu\d|rocm)[\w.]*)-(?P<python>[\w.]+)-[\w.]+-(?P<platform>[\w.]+)\.whl"
)
# uv writes a wheel of a lock into a line of its own.
_URL = re.compile(r'\burl = "([^"]+)"')
_SIZE = re.compile(r"\bsize = ([0-9]+)")
_LINK = re.compile(r"""(?:href=["'][^"']*?|^)(torch-[^"'#/?\s]+\.whl)""", re.MULTILINE)


@functools.cache
def find() -> Accelerator:
    """The accelerator of this machine; a tool that hangs or fails counts as no device."""
    for accelerator, command, device in _TOOLS:
        if shutil.which(command[0]) is None:
            continue
        try:
            output = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        if re.search(device, output, re.MULTILINE):
            return accelerator
    return "cpu"


def cpu_torches(config: MachineConfig, python: str) -> list[str]:
    """Versions like `2.13.0+cpu` that the machine's own sources have for `python` (`3.11`).

    Newest first. PyPI and PyTorch's index are not searched.
    """
    return [version for version in local_torches(config, python) if _is_for(version, "cpu")]


def foreign_torches(config: MachineConfig, python: str, accelerator: str) -> list[str]:
    """As `cpu_torches`, but builds for other accelerators than `accelerator`."""
    return [
        version for version in local_torches(config, python) if not _is_for(version, accelerator)
    ]


def _is_for(version: str, accelerator: str) -> bool:
    local = version.partition("+")[2]
    return local.startswith("cu" if accelerator == "cuda" else accelerator)


def local_torches(config: MachineConfig, python: str) -> list[str]:
    """As `cpu_torches`, but builds for any accelerator."""
    names: set[str] = set()
    for source in config.find_links:
        names.update(_listed(source, config.certificates))
    for index in config.indexes:
        names.update(_listed(index.rstrip("/") + "/torch/", config.certificates))
    tag = "cp" + python.replace(".", "")
    versions = set()
    for name in names:
        match = _WHEEL.fullmatch(name)
        if match and match["python"] in (tag, "py3") and _fits(match["platform"]):
            versions.add(match["version"])
    return sorted(versions, key=_order, reverse=True)


def gpu_packages(packages: Iterable[str]) -> list[str]:
    """Those of the packages (names or lock lines) that hold code for NVIDIA's GPUs."""
    names = (package_name(line) for line in packages)
    return [name for name in names if name.startswith("nvidia-") and name not in _HARMLESS]


def wheels_bytes(pylock: str, packages: Collection[str], python: str) -> int:
    """What the wheels of these packages for this machine and `python` (`3.11`) are together.

    0 when the index didn't say it of one of them. Of several wheels that fit, the largest counts.

    Args:
        pylock: a lock as PEP 751 has it, with sizes.
    """
    total_bytes = 0
    for block in pylock.split("[[packages]]")[1:]:
        name = re.search(r'^name = "([^"]+)"', block, re.MULTILINE)
        if name is None or name[1] not in packages:
            continue
        fitting = [
            int(size[1])
            for line in block.splitlines()
            if (url := _URL.search(line)) and (size := _SIZE.search(line))
            if url[1].endswith(".whl") and _is_wheel_for(url[1].rpartition("/")[2], python)
        ]
        if not fitting:
            return 0
        total_bytes += max(fitting)
    return total_bytes


def _is_wheel_for(name: str, python: str) -> bool:
    tags, abi, platforms = name.removesuffix(".whl").split("-")[-3:]
    return _fits(platforms) and (
        "py3" in tags.split(".")
        or "cp" + python.replace(".", "") in tags.split(".")
        or "abi3" in abi
    )


def _fits(tag: str) -> bool:
    if tag == "any":
        return True
    system = {"Linux": "linux", "Darwin": "macosx", "Windows": "win"}.get(platform.system(), "")
    return system in tag and platform.machine().lower() in tag


def _order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.split("+")[0])]


def _listed(source: str, certificates: str) -> list[str]:
    """File names of torch wheels in a folder, a page of links or an index page."""
    parts = urlsplit(source)
    if parts.scheme in ("http", "https"):
        return [unquote(name) for name in _LINK.findall(_page(source, certificates))]
    folder = Path(unquote(parts.path) if parts.scheme == "file" else source)
    try:
        if folder.is_file():
            return [unquote(name) for name in _LINK.findall(folder.read_text(errors="replace"))]
        if (folder / "index.html").is_file() and parts.scheme == "file":
            text = (folder / "index.html").read_text(errors="replace")
            return [unquote(name) for name in _LINK.findall(text)]
        return [entry.name for entry in folder.iterdir() if entry.name.startswith("torch-")]
    except OSError:
        return []


def _page(url: str, certificates: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(urlunsplit((parts.scheme, host, *parts[2:])))
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    try:
        context = ssl.create_default_context(cafile=certificates or None)
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            return str(response.read(32 << 20).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return ""
