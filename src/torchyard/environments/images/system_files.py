"""The files of this machine that an environment needs to run in an image without any other base.

Owns: the base layer: the C library and the loader, shared libraries that are needed and no
environment brings, a shell and small tools, the folders that programs expect; the Python's own
files.
Leaves: an environment's folder to layer_tar.py, what a file needs to elf.py, where libraries are to
libraries.py.
Always: nothing of the machine's configuration, people or secrets is taken: accounts and name
services are written again, certificates are those that the distribution ships; of an environment
nothing is run, and no path that a file of it names is taken but one of the machine's libraries.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchyard.base.errors import BuildFailed
from torchyard.environments.images import elf, interpreter, layer_tar, libraries
from torchyard.environments.images.layer_tar import Entry
from torchyard.environments.images.libraries import Known

PROGRAMS = (
    "sh", "bash", "env", "cat", "ls", "cp", "mv", "rm", "mkdir", "rmdir", "ln", "chmod", "chown",
    "touch", "head", "tail", "wc", "sort", "uniq", "cut", "tr", "tee", "echo", "printf", "true",
    "false", "test", "pwd", "id", "uname", "date", "sleep", "find", "xargs", "grep", "sed", "awk",
    "tar", "gzip", "which", "nproc", "df", "du", "mktemp", "realpath", "readlink", "dirname",
    "basename", "stat", "timeout", "ps", "kill", "diff", "seq",
)  # fmt: skip
# Loaded by name at run time; no file says that it needs them.
_BY_NAME = ("libc.so.6", "libgcc_s.so.1", "libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2")
# They belong to the kernel of the machine that runs the image, which brings them.
_OF_DRIVER = re.compile(r"lib(cuda|nvidia-.*|nvcuvid|nvoptix)\.so")
_MORE = (
    "/usr/lib/os-release",
    "/etc/os-release",
    "/usr/lib/locale/C.utf8",
    "/usr/lib/locale/C.UTF-8",
)
_CERTIFICATES = Path("/usr/share/ca-certificates/mozilla")
_CERTIFICATE_FILE = "etc/ssl/certs/ca-certificates.crt"
_FOLDERS = ("dev", "etc", "home", "opt", "proc", "run", "sys", "usr", "usr/bin", "var", "var/log")
_LINKED_FOLDERS = ("bin", "sbin", "lib", "lib64")
_ANYBODYS = ("tmp", "var/tmp")
_TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_MOST_LINKS = 40


class Closure:
    """Files of this machine with all that their paths lead through, by their path in an image."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def add(self, path: str) -> str:
        """Add a file or link with its folders; its real path, empty where it does not exist."""
        left = [part for part in path.split("/") if part]
        here: list[str] = []
        links = 0
        while left:
            part = left.pop(0)
            if part in (".", ".."):
                here = here[:-1] if part == ".." else here
                continue
            inside = "/".join((*here, part))
            try:
                status = os.lstat(f"/{inside}")
            except OSError:
                return ""
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(f"/{inside}")
                self.entries[inside] = layer_tar.link(inside, target)
                here = [] if target.startswith("/") else here
                left = [part for part in target.split("/") if part] + left
                links += 1
                if links > _MOST_LINKS:
                    return ""
                continue
            here.append(part)
            if stat.S_ISDIR(status.st_mode):
                self.entries.setdefault(inside, layer_tar.folder(inside))
            elif stat.S_ISREG(status.st_mode):
                self.entries[inside] = layer_tar.file(inside, f"/{inside}", status)
        return "/" + "/".join(here)

    def add_folder(self, path: str) -> None:
        """Add a folder with all that is in it, but what links in it lead to."""
        real = self.add(path)
        if real and os.path.isdir(real):
            for entry in layer_tar.of_environment(Path(real), real.lstrip("/"), _is_left_out):
                self.entries.setdefault(entry.path, entry)

    def put(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries.setdefault(entry.path, entry)

    def sources(self) -> list[Path]:
        """The files on this machine."""
        return [Path(entry.source) for entry in self.entries.values() if entry.source]

    def sorted(self, without: Iterable[str] = ()) -> list[Entry]:
        """Folders come before what is in them."""
        excluded = set(without)
        return [entry for path, entry in sorted(self.entries.items()) if path not in excluded]


def of_python(environment: Path) -> Closure:
    """The Python of an environment and its standard library, at their own paths.

    Raises:
        BuildFailed: the machine has no such Python.
    """
    closure = Closure()
    python = interpreter.files_of(environment)
    program = environment / "bin" / "python"
    if program.is_symlink():
        closure.add(os.path.join(program.parent, os.readlink(program)))
    closure.add(str(python.real))
    closure.entries = {
        path: entry
        for path, entry in closure.entries.items()
        if not Path("/", path).is_relative_to(environment)
    }
    for folder in python.folders:
        if not folder.is_relative_to(environment) and folder.is_dir():
            closure.add_folder(str(folder))
    needs = elf.read(python.real)
    if needs is not None and python.folders:
        # A Python that is a library of its own beside the program.
        for path in libraries.beside(python.real, needs):
            closure.add(path)
    return closure


def of_system(users: Iterable[Path]) -> Closure:
    """The base layer for an image in which these files are used.

    Args:
        users: folders, and files; of their programs and libraries it has what they need.

    Raises:
        BuildFailed: this machine has no C library of the usual kind.
    """
    closure = Closure()
    programs = [
        path for name in PROGRAMS if (path := shutil.which(name, path=libraries.PROGRAM_PATH))
    ]
    closure.put(layer_tar.folder(name) for name in _FOLDERS if not os.path.islink(f"/{name}"))
    closure.put(layer_tar.folder(name, 0o1777) for name in _ANYBODYS)
    closure.put([layer_tar.folder("root", 0o700)])
    for name in _LINKED_FOLDERS:
        if os.path.islink(f"/{name}"):
            closure.add(f"/{name}")
    real_programs = [Path(real) for path in programs if (real := closure.add(path))]
    for path in _MORE:
        closure.add_folder(path) if os.path.isdir(path) else closure.add(path)
    _add_libraries(closure, [*real_programs, *_binaries(users)])
    closure.put([layer_tar.folder("etc/ssl"), layer_tar.folder("etc/ssl/certs")])
    closure.put(layer_tar.text(path, content) for path, content in _TEXTS.items())
    certificates = _certificates()
    if certificates:
        closure.put([layer_tar.text(_CERTIFICATE_FILE, certificates)])
    return closure


def _add_libraries(closure: Closure, users: Iterable[Path]) -> None:
    """Add the loader and the libraries that `users` need, those that these need, and so on."""
    known = libraries.known()
    c_library = known.get("libc.so.6", [""])[0]
    if not c_library:
        raise BuildFailed(
            "the machine's C library was not found, so it has no base for an image",
            "give one that podman has: `--base debian:12-slim`",
        )
    standard = os.path.dirname(c_library)
    library = elf.read(c_library)
    assert library is not None
    left = [*_BY_NAME]
    for user in users:
        left += _names_needed(closure, user, known)
    seen: set[str] = set()
    while left:
        name = left.pop()
        if name in seen or "/" in name or _OF_DRIVER.match(name):
            continue
        seen.add(name)
        for path in known.get(name, ()):
            needs = elf.read(path)
            if needs is None or needs.kind != library.kind:
                continue
            closure.add(path)
            if os.path.realpath(os.path.dirname(path)) != os.path.realpath(standard):
                # The loader looks beside the C library without being told to.
                _link_beside(closure, standard, name, path)
            left += _names_needed(closure, Path(path), known)
            break


def _names_needed(closure: Closure, user: Path, known: Known) -> list[str]:
    needs = elf.read(user)
    if needs is None:
        return []
    if needs.loader and libraries.is_loader(needs.loader, known):
        closure.add(needs.loader)
    return list(needs.libraries)


def _link_beside(closure: Closure, standard: str, name: str, path: str) -> None:
    real = os.path.realpath(standard).lstrip("/")
    closure.add(standard)
    closure.put([layer_tar.link(f"{real}/{name}", path)])


def _binaries(users: Iterable[Path]) -> Iterator[Path]:
    """Programs and libraries among the files, and in the folders."""
    for user in users:
        if not user.is_dir():
            yield user
            continue
        for parent, folders, names in os.walk(user):
            folders.sort()
            for name in sorted(names):
                file = Path(parent, name)
                is_program = ".so" in name or "." not in name
                if is_program and _is_regular(file) and not _is_left_out(parent, name):
                    yield file


def _is_regular(file: Path) -> bool:
    return stat.S_ISREG(os.lstat(file).st_mode)


def _certificates() -> str:
    """The authorities that the distribution trusts; those that its owner added are left out."""
    files = sorted(_CERTIFICATES.glob("*.crt"))
    return "".join(file.read_text("ascii", "ignore").rstrip("\n") + "\n" for file in files)


def _is_left_out(folder: str, name: str) -> bool:
    return interpreter.is_left_out(name)
