"""Where this machine's shared libraries are, by name.

Owns: the loader's cache and folders, the libraries that a Python outside an environment needs.
Leaves: what a file needs to elf.py, which libraries an image gets to its callers.
Always: what a file of an environment names is looked up among the machine's own libraries, never
opened by the path in it: packages wrote that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchyard.environments.images import elf
from torchyard.environments.images.elf import Needs

PROGRAM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_FOLDERS = ("/lib64", "/lib", "/usr/lib64", "/usr/lib", "/usr/local/lib")
_CACHED = re.compile(r"^[ \t]{1,8}(\S{1,255}) \([^)\n]{0,255}\) => (/\S{1,4096})$", re.MULTILINE)

Known = Mapping[str, Sequence[str]]


def known() -> Known:
    """Paths of this machine's libraries by name, the loader's first choice first."""
    paths_by_name: dict[str, list[str]] = {}
    program = shutil.which("ldconfig", path=PROGRAM_PATH)
    if program is not None:
        listed = subprocess.run([program, "-p"], capture_output=True, text=True)
        for name, path in _CACHED.findall(listed.stdout):
            paths_by_name.setdefault(name, []).append(path)
    for folder in _FOLDERS:
        for file in sorted(Path(folder).glob("*.so*")):
            paths_by_name.setdefault(file.name, []).append(str(file))
    return paths_by_name


def is_loader(path: str, known: Known) -> bool:
    """Whether a path that a file names as its loader is this machine's loader."""
    real = os.path.realpath(path)
    return real in map(os.path.realpath, known.get(os.path.basename(path), ()))


def beside(program: Path, needs: Needs) -> Iterator[str]:
    """Paths of the libraries that a program brings below its own prefix, as uv's Pythons do."""
    prefix = program.parent.parent
    for name in needs.libraries:
        for folder in needs.search_path:
            path = os.path.normpath(os.path.join(folder, name))
            if "/" not in name and Path(path).is_relative_to(prefix) and os.path.isfile(path):
                yield path


def needed_by(program: Path, others: Iterable[Path]) -> dict[str, Path]:
    """By name the libraries that a program and its modules need, and those that these need."""
    paths_by_name, libraries = known(), dict[str, Path]()
    own = elf.read(program)
    left = [program, *others]
    while left and own is not None:
        file = left.pop()
        needs = elf.read(file)
        if needs is None or needs.kind != own.kind:
            continue
        brought = {os.path.basename(path): path for path in beside(program, needs)}
        for name in needs.libraries:
            if "/" in name or name in libraries:
                continue
            candidates = [brought[name]] if name in brought else paths_by_name.get(name, ())
            path = next((path for path in candidates if _is_kind(path, own)), "")
            if path:
                libraries[name] = Path(path)
                left.append(Path(path))
    return libraries


def _is_kind(path: str, own: Needs) -> bool:
    needs = elf.read(path)
    return needs is not None and needs.kind == own.kind
