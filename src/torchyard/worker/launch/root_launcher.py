"""Create the root file system of a node, or run a rank's shell inside of it.

Owns: the namespaces, the overlay, the bind mounts, dropping the capabilities that could undo them.
Leaves: which paths are bound to image_root.py.
Always: only the node's overlay and the folders bound as writable can be written to; a rank's
process keeps its pid. The process that created the root ends once the worker holds its namespaces.

Sources: the kernel's filesystems/overlayfs.rst (layers, `userxattr`), pivot_root(2), setns(2).
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

from torchyard.worker.system.mount_launcher import (
    become,
    bind,
    bind_read_only,
    checked,
    give_up_rights,
    libc,
    own_namespaces,
)

# The loader's variables are for the image; the Python that runs this must not see them.
HIDDEN_PREFIX = "TORCHYARD_KEPT_"
_MNT_DETACH = 2
_MS_UNBINDABLE = 1 << 17
_MAX_LINKS = 40
_FAILED = 126


def make(settings_json: str) -> None:
    """Create the root, print `ready`, then wait until standard input is closed."""
    settings = json.loads(settings_json)
    try:
        own_namespaces(as_root=True)
        notice = _overlay(settings["image"], settings["layer"])
        root = f"{settings['layer']}/root"
        # It is below a folder that is bound into it, and would otherwise contain itself.
        no_argument = ctypes.c_char_p()
        path_bytes = os.fsencode(root)
        checked(
            "mount", libc.mount(no_argument, path_bytes, no_argument, _MS_UNBINDABLE, no_argument)
        )
        for folder in settings["system_folders"]:
            _bind_path(root, folder, bind)
        for folder in settings["writable"]:
            _bind_path(root, folder, bind)
        for path in settings["read_only"]:
            _bind_path(root, path, bind_read_only)
        for source, target in settings["driver_files"]:
            _bind_path(root, target, bind_read_only, source)
        for source, target in settings["mounts"]:
            bind_read_only(source, _path_in_root(root, target))
        for link, target in settings["links"].items():
            _link(_path_in_root(root, link), target)
        _enter(root)
    except OSError as error:
        os.write(2, f"torchyard: {error}\n".encode())
        os._exit(_FAILED)
    os.write(1, f"ready\n{notice}\n".encode())
    os.close(1)
    os.close(2)
    os.read(0, 1)
    os._exit(0)


def join(settings_json: str, *arguments: str) -> None:
    """Enter the root and run the command."""
    settings: dict[str, Any] = json.loads(settings_json)
    try:
        # Open all before entering one, because their paths differ inside.
        for namespace in [os.open(name, os.O_RDONLY) for name in settings["spaces"]]:
            checked("setns", libc.setns(namespace, 0))
            os.close(namespace)
        os.chdir(settings["folder"])
        give_up_rights()
    except OSError as error:
        os.write(2, f"torchyard: the image can't be entered: {error}\n".encode())
        os._exit(_FAILED)
    for name in [name for name in os.environ if name.startswith(HIDDEN_PREFIX)]:
        os.environ[name[len(HIDDEN_PREFIX) :]] = os.environ.pop(name)
    become(list(arguments))


def _overlay(image: str, layer: str) -> str:
    """Mount the overlay at `layer`/root; return a notice for the user, if any."""
    error = _mount_overlay(image, layer)
    if not error:
        return ""
    # Some file systems, such as overlays and network shares, can't be the upper layer.
    memory = f"{layer}/memory"
    os.makedirs(memory, exist_ok=True)
    no_argument = ctypes.c_char_p()
    checked(
        f"can't mount an overlay over the image ({error}), nor one in memory",
        libc.mount(b"tmpfs", os.fsencode(memory), b"tmpfs", 0, no_argument),
    )
    for name in ("upper", "work"):
        os.mkdir(f"{memory}/{name}")
    second_error = _mount_overlay(image, layer, memory)
    if second_error:
        raise OSError(f"can't mount an overlay over the image: {error}; in memory: {second_error}")
    return (
        f"files that the job writes into the image are kept in memory, because the disk does not "
        f"support an overlay: {error}"
    )


def _mount_overlay(image: str, layer: str, upper: str = "") -> str:
    upper = upper or layer
    options = [
        f"lowerdir={_escaped(image)}",
        f"upperdir={_escaped(upper)}/upper",
        f"workdir={_escaped(upper)}/work",
    ]
    if _is_namespace_root():
        options.append("userxattr")
    target, arguments = os.fsencode(f"{layer}/root"), os.fsencode(",".join(options))
    if libc.mount(b"overlay", target, b"overlay", 0, arguments) == 0:
        return ""
    return os.strerror(ctypes.get_errno())


def _is_namespace_root() -> bool:
    """Whether this process is root only in a user namespace."""
    with open("/proc/self/uid_map") as file:
        return file.read().split() != ["0", "0", "4294967295"]


def _escaped(path: str) -> str:
    for character in ("\\", ":", ","):
        path = path.replace(character, f"\\{character}")
    return path


def _bind_path(root: str, path: str, bind_function: Any, source: str = "") -> None:
    """Bind a path of the machine, or `source`, at the same path below `root`."""
    target = _path_in_root(root, path)
    source = source or path
    if os.path.isdir(source):
        if not os.path.isdir(target):
            os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.isfile(target):
            with open(target, "w"):
                pass
    bind_function(source, target)


def _link(path: str, target: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.lexists(path):
        os.symlink(target, path)


def _path_in_root(root: str, path: str) -> str:
    """The location of `path` below `root`; links are resolved within the root.

    If the last part is a link, it is removed.
    """
    remaining = [part for part in path.split("/") if part]
    resolved: list[str] = []
    links = 0
    while remaining:
        part = remaining.pop(0)
        if part == "..":
            resolved = resolved[:-1]
            continue
        if part == ".":
            continue
        path_bytes = "/".join([root, *resolved, part])
        if not os.path.islink(path_bytes):
            resolved.append(part)
        elif not remaining:
            os.unlink(path_bytes)
            resolved.append(part)
        else:
            links += 1
            if links > _MAX_LINKS:
                raise OSError(f"too many links at {path} in the image")
            link_target = os.readlink(path_bytes)
            resolved = [] if link_target.startswith("/") else resolved
            remaining = [name for name in link_target.split("/") if name] + remaining
    return "/".join([root, *resolved])


def _enter(root: str) -> None:
    """Make it the root of this namespace and unmount the machine's root."""
    os.chdir(root)
    checked("pivot_root", libc.pivot_root(b".", b"."))
    checked("umount", libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")
