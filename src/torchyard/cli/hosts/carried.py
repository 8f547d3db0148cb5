"""What goes to a host: the program that runs there first, the node's agent as a zip, uv.

Owns: which files the agent needs, the zip.
Leaves: starting them to node_agent/host_program.py, the agent's own zip's use to the host.
Always: the agent's files import the standard library and each other alone; they are sent, and
nothing of them is imported here.
"""

from __future__ import annotations

import functools
import io
import platform
import zipfile
from pathlib import Path

from torchyard.base.errors import BuildFailed
from torchyard.base.home.uv import find_uv

_PACKAGE = Path(__file__).resolve().parents[2]
_MAIN = "import sys\n\nfrom torchyard.node_agent.__main__ import main\n\nsys.exit(main())\n"
_DATE = (2020, 1, 1, 0, 0, 0)
FILES = (
    "__init__.py",
    "base/__init__.py",
    "base/disk.py",
    "base/errors.py",
    "base/files.py",
    "base/home/__init__.py",
    "base/home/uv.py",
    "base/http.py",
    "base/package_sources.py",
    "base/pinned_certificates.py",
    "base/terminal_text.py",
    "base/versions.py",
    "executors/__init__.py",
    "executors/ray/__init__.py",
    "executors/ray/programs.py",
    "executors/ray/ray_environment.py",
    "executors/ray/ray_variables.py",
    "node_agent/__init__.py",
    "node_agent/__main__.py",
    "node_agent/agent.py",
    "node_agent/carried_ray.py",
    "node_agent/facts.py",
    "node_agent/invitations.py",
    "node_agent/port_probe.py",
    "node_agent/ray_node.py",
    "node_agent/restarts.py",
    "shared/__init__.py",
    "shared/archives.py",
    "shared/locks.py",
    "shared/node_agents.py",
    "shared/processes.py",
)


@functools.cache
def host_program() -> bytes:
    return (_PACKAGE / "node_agent" / "host_program.py").read_bytes()


@functools.cache
def agent_zip() -> bytes:
    """The same bytes for the same sources."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _DATE), _MAIN)
        for name in FILES:
            info = zipfile.ZipInfo(f"torchyard/{name}", _DATE)
            archive.writestr(info, (_PACKAGE / name).read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def own_system() -> str:
    """As hosts name theirs: programs go only to an equal one."""
    return f"{platform.system()} {platform.machine()}"


def uv_program() -> Path | None:
    try:
        return Path(find_uv())
    except BuildFailed:
        return None
