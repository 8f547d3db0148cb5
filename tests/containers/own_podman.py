"""A podman with configuration, storage and networks of its own.

Owns: the files that say so, and the variables that name them.
Leaves: what is made with it, and removing that, to the fixtures.
Always: the machine's own images, containers, volumes and networks are never looked at.
"""

from __future__ import annotations

from pathlib import Path

# What works on small machines and in containers: no crun, no systemd.
_CONFIGURATION = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "{folder}/run/libpod"
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
"""
_NETWORK = """\
[network]
network_backend = "{backend}"
network_config_dir = "{folder}/networks"
"""
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""


def configure(folder: Path, network_backend: str = "") -> dict[str, str]:
    """Write its configuration into a folder; the variables by which podman finds it.

    Args:
        network_backend: `netavark`, whose containers know each other by name; empty for podman's
            choice, in the machine's own configuration.
    """
    engine = _CONFIGURATION + (_NETWORK if network_backend else "")
    for name, text in (("containers", engine), ("storage", _STORAGE)):
        (folder / f"{name}.conf").write_text(text.format(folder=folder, backend=network_backend))
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }
