"""The root filesystem that the ranks of a node run in.

Owns: which folders of the machine are seen in it, the namespace that holds it, the words that
start a rank's shell inside.
Leaves: making it and entering it to root_launcher.py, in processes of their own.
Always: the image's folder is only read: what ranks write goes to a layer of this node's own, which
is gone with the node. The ranks of a node share one root; they stay children of the worker.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.shared.failures import Failure
from torchyard.worker import IMPORT_PATH
from torchyard.worker.launch.launching import MPI

if TYPE_CHECKING:
    from torchyard.shared.plan import ImagePlan, LaunchPlan
    from torchyard.worker.files.node_folders import NodeFolders
    from torchyard.worker.launch.surroundings import Surroundings
    from torchyard.worker.system.mounts import Mount

_WHY_BYTES = 2000
# What a network needs of its machine, and where the machine's zone is told.
_MACHINES_OWN = ("/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/etc/localtime")
_WHOLE = ("/proc", "/sys", "/dev")
_SHELLS = ("bin/bash", "usr/bin/bash", "bin/sh", "usr/bin/sh")
# Of the machine's own variables those that hold anywhere; all others name its own files.
_KEPT = ("LANG", "TZ", "TERM", "USER", "LOGNAME")
_KEPT_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "ROCR_", "HIP_", "HSA_", "OMP_", "MKL_",
    "PIP_", "UV_", "HF_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY",
)  # fmt: skip
# These name files, which are shown at their place if they are there.
_FILES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "PIP_CONFIG_FILE",
    "AWS_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
_PIP_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf")
# Of NVIDIA's driver, what computing takes; it has to be that of the kernel's module.
_DEVICES = ("dev/nvidiactl", "dev/dxg")
_DRIVER = "/run/torchyard-driver"
_DRIVERS = (
    "libcuda.so*", "libcudadebugger.so*", "libnvidia-ml.so*", "libnvidia-cfg.so*",
    "libnvidia-ptxjitcompiler.so*", "libnvidia-nvvm*.so*", "libnvidia-gpucomp.so*",
)  # fmt: skip
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib",
              "usr/local/nvidia/lib64", "usr/lib/wsl/lib")  # fmt: skip
# As docker has it for an image that says nothing.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOME = "/root"


@dataclass
class Root:
    """Held by open files: it ends with this process and the last rank.

    `notices` are for the user.
    """

    shell: str
    folder: str
    spaces: list[int]
    notices: tuple[str, ...] = ()
    _place: str = field(default=IMPORT_PATH)

    def command(self, words: Sequence[str]) -> list[str]:
        """`words` as they are started inside, in the same folder as outside."""
        spaces = [f"/proc/{os.getpid()}/fd/{space}" for space in self.spaces]
        told = json.dumps({"spaces": spaces, "folder": self.folder})
        return [sys.executable, "-I", "-S", "-c", _PROGRAM, self._place, "join", told, *words]

    def hidden(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The same, with the loader's variables under names that only the launcher knows."""
        from torchyard.worker.launch.root_launcher import HIDDEN

        return {
            f"{HIDDEN}{name}" if name.startswith("LD_") else name: value
            for name, value in environment.items()
        }

    def close(self) -> None:
        for space in self.spaces:
            os.close(space)
        self.spaces = []


def of_node(
    plan: LaunchPlan, folders: NodeFolders, found: Surroundings, base: Mapping[str, str]
) -> Root:
    """The root of a node's ranks, which has the inputs' mounts in it.

    Raises:
        Failure: the machine does not allow it, or the job can't run in an image.
    """
    assert plan.image is not None
    if plan.distribution == MPI and plan.world_size > 1:
        raise Failure(
            "image_without_mpi",
            "a job of type mpi can't run in an image: Open MPI is the machine's own",
            "write `distribution: {type: pytorch}`, or an environment without an image",
        )
    seen = list(dict.fromkeys([plan.scratch, str(folders.node)]))
    short = found.temporary
    links = {str(short): str(folders.temporary)} if short != folders.temporary else {}
    return make(plan.image, folders.node, seen, found.layout.mounts, links, base)


def make(
    image: ImagePlan,
    node: Path,
    seen: Sequence[str],
    mounts: Sequence[Mount],
    links: Mapping[str, str],
    base: Mapping[str, str],
) -> Root:
    """Make the root of a node.

    Args:
        node: the node's folder, for the layer that takes what ranks write.
        seen: folders that ranks may write to, at their own places.
        mounts: of inputs, read-only.
        links: paths outside `seen` that are to lead into it.
        base: this worker's own variables.

    Raises:
        Failure: this machine does not allow it, and why.
    """
    layer = node / "image"
    for name in ("upper", "work", "root"):
        (layer / name).mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {
        "image": image.rootfs,
        "layer": str(layer),
        "whole": list(_WHOLE),
        "seen": list(seen),
        "shown": _shown(image.visible, base),
        "placed": [],
        "mounts": [[mount.source, mount.target] for mount in mounts],
        "links": dict(links),
    }
    for target, source in driver_files().items():
        told["placed"].append([source, target])
    shell = next((name for name in _SHELLS if os.path.lexists(f"{image.rootfs}/{name}")), "")
    if not shell:
        raise Failure(
            "image_unusable",
            "the image holds no shell, which a job's command needs",
            "build on an image that has /bin/sh",
        )
    spaces, notice = _hold(told)
    return Root(f"/{shell}", os.getcwd(), spaces, (notice,) if notice else ())


def variables(image: ImagePlan, base: Mapping[str, str]) -> dict[str, str]:
    """What ranks inherit: the image's own variables, and what holds in any image."""
    kept = {
        name: value
        for name, value in base.items()
        if name in (*_KEPT, *_FILES) or name.upper().startswith(_KEPT_PREFIXES)
    }
    found = {"PATH": _PATH, "HOME": _HOME, **kept, **image.variables}
    if driver_files():
        # Behind the image's own: only the driver's libraries are there.
        own = found.get("LD_LIBRARY_PATH", "")
        found["LD_LIBRARY_PATH"] = f"{own}:{_DRIVER}" if own else _DRIVER
    return found


def driver_files(root: Path = Path("/")) -> dict[str, str]:
    """What a GPU's programs need of its driver, which no image has: targets and their sources."""
    if not any(os.path.exists(root / device) for device in _DEVICES):
        return {}
    found: dict[str, str] = {}
    for folder in _LIBRARIES:
        for pattern in _DRIVERS:
            for file in (root / folder).glob(pattern):
                if file.is_file():
                    found.setdefault(f"{_DRIVER}/{file.name}", os.path.realpath(file))
    tool = root / "usr/bin/nvidia-smi"
    if found and tool.is_file():
        found["/usr/bin/nvidia-smi"] = os.path.realpath(tool)
    return found


def _shown(visible: Sequence[str], base: Mapping[str, str]) -> list[str]:
    """Files and folders of the machine that are there, to be seen read-only."""
    home = base.get("HOME", "")
    pip = [place.replace("~", home, 1) for place in _PIP_FILES if home or "~" not in place]
    named = [base[name] for name in _FILES if base.get(name)]
    found = [place for place in (*_MACHINES_OWN, *pip, *named, *visible) if os.path.exists(place)]
    return [place for place in dict.fromkeys(found) if place != "/dev/null"]


def _hold(told: Mapping[str, object]) -> tuple[list[int], str]:
    """Open files of the namespaces in which the root is, and what is to be said of it."""
    place = IMPORT_PATH
    words = [sys.executable, "-I", "-S", "-c", _PROGRAM, place, "make", json.dumps(told)]
    told_to, answers = os.pipe()
    waits, lets_go = os.pipe()
    try:
        # Not by subprocess: only the main thread knows this worker's children, and reaps any.
        pid = os.posix_spawn(
            words[0],
            words,
            {"PATH": os.defpath},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, waits, 0),
                (os.POSIX_SPAWN_DUP2, answers, 1),
                (os.POSIX_SPAWN_DUP2, answers, 2),
            ],
        )
    finally:
        os.close(answers)
        os.close(waits)
    try:
        with open(told_to, "rb", buffering=0) as reader:
            answer = reader.read(_WHY_BYTES).decode(errors="replace").strip()
        ready, _, notice = answer.partition("\n")
        if ready != "ready":
            raise Failure(
                "image_forbidden",
                "this machine does not let the job enter the image of its environment: "
                f"{answer.rpartition(chr(10))[2] or 'its program ended'}",
                "it takes user namespaces and overlay file systems: see `yard doctor`; "
                "an environment of `conda_file` or `pip_requirements` needs neither",
            )
        # In this order they are entered: the first gives the right to enter the second.
        names = ("user", "mnt") if os.geteuid() else ("mnt",)
        return [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names], notice.strip()
    finally:
        os.close(lets_go)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # reaped by whoever ends this node


_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from torchyard.worker.launch import root_launcher; "
    "getattr(root_launcher, sys.argv[2])(*sys.argv[3:])"
)
