"""The Python of an environment, as files that can be copied into an image.

Owns: which files outside an environment its Python needs: itself, the standard library, shared
libraries.
Leaves: copying the environment to build/image_builder.py.
Always: the files keep their paths, which are written into environments; the C library is that of
the image, which has to be as new as this machine's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchyard.base.errors import BuildFailed

# In the image: libraries that it may lack, and the linker's configuration for them. It comes last
# in the linker's order, so that the image's own libraries are used first.
LIBRARIES = "opt/torchyard/lib"
_LINKER = "etc/ld.so.conf.d/zz-torchyard.conf"
_NOT_NEEDED = ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo",
               "__pycache__", "ensurepip")  # fmt: skip
_OF_C = re.compile(
    r"(ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libnsl|linux-vdso"
    r"|libmvec|libBrokenLocale|libnss_\w+)\.so"
)
_LINKED = re.compile(r"^[ \t]*(\S+) => (/\S+)", re.MULTILINE)
_ASK = """
import json, sys, sysconfig
names = ("stdlib", "platstdlib", "include")
print(json.dumps([*map(sysconfig.get_path, names), sysconfig.get_config_var("DESTSHARED")]))
"""


@dataclass(frozen=True)
class PythonFiles:
    """The `real` program of an environment, the links that lead to it, its standard library."""

    real: Path
    programs: tuple[Path, ...]
    folders: tuple[Path, ...]


def files_of(environment: Path) -> PythonFiles:
    """What the Python of an environment consists of, without shared libraries.

    Raises:
        BuildFailed: its Python can't be run.
    """
    # The real program, so that it prints its own folders and not the environment's.
    real = (environment / "bin" / "python").resolve()
    outcome = subprocess.run([real, "-I", "-c", _ASK], capture_output=True, text=True)
    if outcome.returncode:
        raise BuildFailed(
            f"the Python of the environment can't be run: {outcome.stderr.strip()[-200:]}",
            "remove the environment with `yard gc`; the next build makes it again",
        )
    folders = list(
        dict.fromkeys(Path(name).resolve() for name in json.loads(outcome.stdout) if name)
    )
    return PythonFiles(real, tuple(_chain(environment / "bin" / "python")), tuple(folders))


def is_left_out(name: str) -> bool:
    """Whether a file or folder of a standard library is not needed to run programs."""
    return name in _NOT_NEEDED or name.startswith(("config-", "_tkinter."))


def copy(environment: Path, target: Path) -> None:
    """Copy what the Python of `environment` needs below `target`, with the paths it has here.

    Raises:
        BuildFailed: its Python can't be run.
    """
    python = files_of(environment)
    for file in (*python.programs, python.real):
        if not file.is_relative_to(environment):
            _put(file, target)
    for folder in python.folders:
        inside = folder.is_relative_to(environment) or not folder.is_dir()
        if not inside and not (target / folder.relative_to("/")).exists():
            _put_folder(folder, target)
    libraries = target / LIBRARIES
    libraries.mkdir(parents=True, exist_ok=True)
    for library in _libraries(python.real, list(python.folders)):
        shutil.copyfile(library, libraries / library.name)
    linker = target / _LINKER
    linker.parent.mkdir(parents=True, exist_ok=True)
    linker.write_text(f"/{LIBRARIES}\n", encoding="utf-8")


def _chain(link: Path) -> Iterator[Path]:
    """The links between an environment's python and the program."""
    while link.is_symlink():
        link = Path(os.path.normpath(link.parent / os.readlink(link)))
        if link.is_symlink():
            yield link


def _libraries(program: Path, folders: list[Path]) -> list[Path]:
    """Shared libraries of the program and its extension modules, without those of libc."""
    modules = [file for folder in folders for file in folder.rglob("*.so")]
    programs = [program, *(file for file in modules if not _is_left_out(file))]
    output = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
    libraries = {name: Path(path) for name, path in _LINKED.findall(output)}
    return [path for name, path in sorted(libraries.items()) if not _OF_C.match(name)]


def _is_left_out(file: Path) -> bool:
    return file.name.startswith("_tkinter.") or any(part in _NOT_NEEDED for part in file.parts)


def _put(source: Path, target: Path) -> None:
    at = target / (source.parent.resolve() / source.name).relative_to("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(at):
        shutil.copy2(source, at, follow_symlinks=False)


def _put_folder(folder: Path, target: Path) -> None:
    def left_out(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name in _NOT_NEEDED or name.startswith("config-")]

    shutil.copytree(
        folder, target / folder.relative_to("/"), symlinks=True, ignore=left_out, dirs_exist_ok=True
    )
