"""Makes the root filesystem of a node, or becomes a rank's shell inside it.

Owns: the namespaces, the overlay, what is bound into it, giving up the rights that could undo it.
Leaves: what is bound to image_root.py.
Always: nothing but the layer of the node's own and the folders that are bound writable can be
written to; a rank's process keeps its number. The maker waits until its namespaces are held by
another, and ends.

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

# The loader's variables are the image's; the Python that runs this shall not see them.
HIDDEN = "TORCHYARD_KEPT_"
_MNT_DETACH = 2
_MS_UNBINDABLE = 1 << 17
_MOST_LINKS = 40
_FAILED = 126


def make(told_as_json: str) -> None:
    """Make it, say `ready` on standard output, then wait until standard input ends."""
    told = json.loads(told_as_json)
    try:
        own_namespaces(as_root=True)
        notice = _overlay(told["image"], told["layer"])
        root = f"{told['layer']}/root"
        # It lies in a folder that is bound below, and would be seen in itself.
        nothing = ctypes.c_char_p()
        at = os.fsencode(root)
        checked("mount", libc.mount(nothing, at, nothing, _MS_UNBINDABLE, nothing))
        for folder in told["whole"]:
            _show(root, folder, bind)
        for folder in told["seen"]:
            _show(root, folder, bind)
        for place in told["shown"]:
            _show(root, place, bind_read_only)
        for source, target in told["placed"]:
            _show(root, target, bind_read_only, source)
        for source, target in told["mounts"]:
            bind_read_only(source, _inside(root, target))
        for link, target in told["links"].items():
            _link(_inside(root, link), target)
        _enter(root)
    except OSError as error:
        os.write(2, f"torchyard: {error}\n".encode())
        os._exit(_FAILED)
    os.write(1, f"ready\n{notice}\n".encode())
    os.close(1)
    os.close(2)
    os.read(0, 1)
    os._exit(0)


def join(told_as_json: str, *words: str) -> None:
    """Enter the root and become `words`."""
    told: dict[str, Any] = json.loads(told_as_json)
    try:
        # All are opened before one is entered: there, they are at other paths.
        for space in [os.open(name, os.O_RDONLY) for name in told["spaces"]]:
            checked("setns", libc.setns(space, 0))
            os.close(space)
        os.chdir(told["folder"])
        give_up_rights()
    except OSError as error:
        os.write(2, f"torchyard: the image can't be entered: {error}\n".encode())
        os._exit(_FAILED)
    for name in [name for name in os.environ if name.startswith(HIDDEN)]:
        os.environ[name[len(HIDDEN) :]] = os.environ.pop(name)
    become(list(words))


def _overlay(image: str, layer: str) -> str:
    """Mount it at `layer`/root; the answer is what the user is to be told."""
    why = _mount_overlay(image, layer)
    if not why:
        return ""
    # Some file systems can't be the upper layer, as another overlay or a network's.
    memory = f"{layer}/memory"
    os.makedirs(memory, exist_ok=True)
    nothing = ctypes.c_char_p()
    checked(
        f"no overlay over the image ({why}), and no memory for one",
        libc.mount(b"tmpfs", os.fsencode(memory), b"tmpfs", 0, nothing),
    )
    for name in ("upper", "work"):
        os.mkdir(f"{memory}/{name}")
    again = _mount_overlay(image, layer, memory)
    if again:
        raise OSError(f"no overlay file system over the image: {why}; in memory: {again}")
    return f"what the job writes into the image is kept in memory: on this disk, {why}"


def _mount_overlay(image: str, layer: str, upper: str = "") -> str:
    upper = upper or layer
    options = [
        f"lowerdir={_escaped(image)}",
        f"upperdir={_escaped(upper)}/upper",
        f"workdir={_escaped(upper)}/work",
    ]
    if _is_mapped():
        options.append("userxattr")
    target, words = os.fsencode(f"{layer}/root"), os.fsencode(",".join(options))
    if libc.mount(b"overlay", target, b"overlay", 0, words) == 0:
        return ""
    return os.strerror(ctypes.get_errno())


def _is_mapped() -> bool:
    """Whether this is root in a namespace only."""
    with open("/proc/self/uid_map") as file:
        return file.read().split() != ["0", "0", "4294967295"]


def _escaped(path: str) -> str:
    for sign in ("\\", ":", ","):
        path = path.replace(sign, f"\\{sign}")
    return path


def _show(root: str, path: str, how: Any, source: str = "") -> None:
    """Bind a path of the machine, or `source`, at this place below `root`."""
    target = _inside(root, path)
    source = source or path
    if os.path.isdir(source):
        if not os.path.isdir(target):
            os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.isfile(target):
            with open(target, "w"):
                pass
    how(source, target)


def _link(path: str, target: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.lexists(path):
        os.symlink(target, path)


def _inside(root: str, path: str) -> str:
    """Where `path` is below `root`; links are followed as they lead in there.

    The last part is not: a link in its place is taken away.
    """
    left = [part for part in path.split("/") if part]
    here: list[str] = []
    links = 0
    while left:
        part = left.pop(0)
        if part == "..":
            here = here[:-1]
            continue
        if part == ".":
            continue
        at = "/".join([root, *here, part])
        if not os.path.islink(at):
            here.append(part)
        elif not left:
            os.unlink(at)
            here.append(part)
        else:
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"too many links at {path} in the image")
            leads_to = os.readlink(at)
            here = [] if leads_to.startswith("/") else here
            left = [name for name in leads_to.split("/") if name] + left
    return "/".join([root, *here])


def _enter(root: str) -> None:
    """Make it the root of this namespace, and let go of the machine's."""
    os.chdir(root)
    checked("pivot_root", libc.pivot_root(b".", b"."))
    checked("umount", libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")
