"""The root file system that the ranks of a node run in.

Owns: which folders of the machine are visible in it, the namespaces that hold it, the command that
starts a rank's shell inside.
Leaves: creating and entering it to root_launcher.py, in separate processes.
Always: the image's folder is only read: what ranks write goes to an overlay of this node, which is
removed with the node. The ranks of a node share one root; they stay children of the worker.
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
from torchyard.worker.launch.launch_ports import MPI

if TYPE_CHECKING:
    from torchyard.shared.plan import ImagePlan, LaunchPlan
    from torchyard.worker.files.node_folders import NodeFolders
    from torchyard.worker.launch.node_setup import NodeSetup
    from torchyard.worker.system.mounts import Mount

_MAX_ANSWER_BYTES = 2000
# The machine's network configuration and time zone.
_MACHINE_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/etc/localtime")
_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
_SHELLS = ("bin/bash", "usr/bin/bash", "bin/sh", "usr/bin/sh")
# The machine's variables that are valid in any root; all others refer to its files.
_KEPT_VARIABLES = ("LANG", "TZ", "TERM", "USER", "LOGNAME")
_KEPT_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "ROCR_", "HIP_", "HSA_", "OMP_", "MKL_",
    "PIP_", "UV_", "HF_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY",
)  # fmt: skip
# These name files, which are bound at the same path if they exist.
_FILE_VARIABLES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "PIP_CONFIG_FILE",
    "AWS_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
_PIP_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf")
# The parts of NVIDIA's driver for computing; they must match the kernel module.
_DEVICES = ("dev/nvidiactl", "dev/dxg")
_DRIVER = "/run/torchyard-driver"
_DRIVER_LIBRARIES = (
    "libcuda.so*", "libcudadebugger.so*", "libnvidia-ml.so*", "libnvidia-cfg.so*",
    "libnvidia-ptxjitcompiler.so*", "libnvidia-nvvm*.so*", "libnvidia-gpucomp.so*",
)  # fmt: skip
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib",
              "usr/local/nvidia/lib64", "usr/lib/wsl/lib")  # fmt: skip
# Docker's default for an image without its own.
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEFAULT_HOME = "/root"


@dataclass
class Root:
    """Kept alive by open files until this process and the last rank end.

    `notices` are for the user.
    """

    shell: str
    folder: str
    namespaces: list[int]
    notices: tuple[str, ...] = ()
    _import_path: str = field(default=IMPORT_PATH)

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs `words` inside, in the same folder as outside."""
        namespaces = [f"/proc/{os.getpid()}/fd/{namespace}" for namespace in self.namespaces]
        settings = json.dumps({"spaces": namespaces, "folder": self.folder})
        return [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _PROGRAM,
            self._import_path,
            "join",
            settings,
            *words,
        ]

    def hide_loader_variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Rename the loader's variables, which would affect the launcher; it restores them."""
        from torchyard.worker.launch.root_launcher import HIDDEN_PREFIX

        return {
            f"{HIDDEN_PREFIX}{name}" if name.startswith("LD_") else name: value
            for name, value in environment.items()
        }

    def close(self) -> None:
        for namespace in self.namespaces:
            os.close(namespace)
        self.namespaces = []


def node_root(
    plan: LaunchPlan, folders: NodeFolders, values: NodeSetup, base: Mapping[str, str]
) -> Root:
    """Create the root of a node's ranks, including the inputs' mounts.

    Raises:
        Failure: the machine does not allow it, or the job can't run in an image.
    """
    assert plan.image is not None
    if plan.distribution == MPI and plan.world_size > 1:
        raise Failure(
            "image_without_mpi",
            "a job of type mpi can't run in an image, because it uses the machine's Open MPI",
            "use `distribution: {type: pytorch}`, or an environment without an image",
        )
    writable = list(dict.fromkeys([plan.scratch, str(folders.node)]))
    temporary = values.temporary
    links = {str(temporary): str(folders.temporary)} if temporary != folders.temporary else {}
    return make_root(plan.image, folders.node, writable, values.layout.mounts, links, base)


def make_root(
    image: ImagePlan,
    node: Path,
    writable: Sequence[str],
    mounts: Sequence[Mount],
    links: Mapping[str, str],
    base: Mapping[str, str],
) -> Root:
    """Create the root of a node.

    Args:
        node: the node's folder, for the overlay that receives what ranks write.
        writable: folders that ranks may write to, at the same paths.
        mounts: of inputs, read-only.
        links: links to create, outside of `writable`, and their targets.
        base: this worker's own variables.

    Raises:
        Failure: the machine does not allow it.
    """
    layer = node / "image"
    for name in ("upper", "work", "root"):
        (layer / name).mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "image": image.rootfs,
        "layer": str(layer),
        "system_folders": list(_SYSTEM_FOLDERS),
        "writable": list(writable),
        "read_only": _visible_files(image.visible, base),
        "driver_files": [],
        "mounts": [[mount.source, mount.target] for mount in mounts],
        "links": dict(links),
    }
    for target, source in driver_files().items():
        settings["driver_files"].append([source, target])
    shell = next((name for name in _SHELLS if os.path.lexists(f"{image.rootfs}/{name}")), "")
    if not shell:
        raise Failure(
            "image_unusable",
            "the image has no shell, which a job's command needs",
            "use a base image that has /bin/sh",
        )
    namespaces, notice = _start_launcher(settings)
    return Root(f"/{shell}", os.getcwd(), namespaces, (notice,) if notice else ())


def variables(image: ImagePlan, base: Mapping[str, str]) -> dict[str, str]:
    """The variables that ranks inherit: the image's own, and those valid in any image."""
    inherited = {
        name: value
        for name, value in base.items()
        if name in (*_KEPT_VARIABLES, *_FILE_VARIABLES) or name.upper().startswith(_KEPT_PREFIXES)
    }
    values = {"PATH": _DEFAULT_PATH, "HOME": _DEFAULT_HOME, **inherited, **image.variables}
    if driver_files():
        # After the image's own: this folder holds only the driver's libraries.
        library_path = values.get("LD_LIBRARY_PATH", "")
        values["LD_LIBRARY_PATH"] = f"{library_path}:{_DRIVER}" if library_path else _DRIVER
    return values


def driver_files(root: Path = Path("/")) -> dict[str, str]:
    """The driver files that GPU programs need and no image has: target paths and sources."""
    if not any(os.path.exists(root / device) for device in _DEVICES):
        return {}
    values: dict[str, str] = {}
    for folder in _LIBRARIES:
        for pattern in _DRIVER_LIBRARIES:
            for file in (root / folder).glob(pattern):
                if file.is_file():
                    values.setdefault(f"{_DRIVER}/{file.name}", os.path.realpath(file))
    tool = root / "usr/bin/nvidia-smi"
    if values and tool.is_file():
        values["/usr/bin/nvidia-smi"] = os.path.realpath(tool)
    return values


def _visible_files(visible: Sequence[str], base: Mapping[str, str]) -> list[str]:
    """Existing files and folders of the machine that are bound read-only."""
    home = base.get("HOME", "")
    pip = [path.replace("~", home, 1) for path in _PIP_FILES if home or "~" not in path]
    variable_files = [base[name] for name in _FILE_VARIABLES if base.get(name)]
    values = [
        path for path in (*_MACHINE_FILES, *pip, *variable_files, *visible) if os.path.exists(path)
    ]
    return [path for path in dict.fromkeys(values) if path != "/dev/null"]


def _start_launcher(settings: Mapping[str, object]) -> tuple[list[int], str]:
    """Create the root; return open files of its namespaces, and a notice for the user."""
    path = IMPORT_PATH
    words = [sys.executable, "-I", "-S", "-c", _PROGRAM, path, "make", json.dumps(settings)]
    answer_pipe, answer_write = os.pipe()
    hold_read, hold_write = os.pipe()
    try:
        # Not by subprocess, because the main thread reaps all children of this worker.
        pid = os.posix_spawn(
            words[0],
            words,
            {"PATH": os.defpath},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, hold_read, 0),
                (os.POSIX_SPAWN_DUP2, answer_write, 1),
                (os.POSIX_SPAWN_DUP2, answer_write, 2),
            ],
            setsigmask=(),
        )
    finally:
        os.close(answer_write)
        os.close(hold_read)
    try:
        with open(answer_pipe, "rb", buffering=0) as reader:
            answer = reader.read(_MAX_ANSWER_BYTES).decode(errors="replace").strip()
        ready, _, notice = answer.partition("\n")
        if ready != "ready":
            raise Failure(
                "image_forbidden",
                "the job can't run in the image of its environment on this machine: "
                f"{answer.rpartition(chr(10))[2] or 'the launcher ended'}",
                "images need user namespaces and overlay file systems: see `yard doctor`; an "
                "environment with `conda_file` or `pip_requirements` needs neither",
            )
        # Entered in this order, because the first one permits entering the second.
        names = ("user", "mnt") if os.geteuid() else ("mnt",)
        return [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names], notice.strip()
    finally:
        os.close(hold_write)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # already reaped by the main thread


_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from torchyard.worker.launch import root_launcher; "
    "getattr(root_launcher, sys.argv[2])(*sys.argv[3:])"
)
