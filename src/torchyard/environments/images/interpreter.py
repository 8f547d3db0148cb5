"""The Python of an environment, as files that can be copied into an image.

Owns: which files outside an environment its Python needs: itself, the standard library, shared
libraries.
Leaves: finding libraries to libraries.py, copying the environment to build/image_builder.py.
Always: no Python is run, nor any other program of an environment: where its files are is read from
folders; the files keep their paths, which are written into environments; the C library is that of
the image, which has to be as new as this machine's.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchyard.base.errors import BuildFailed
from torchyard.environments.images import elf, libraries

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
_VERSION = re.compile(r"python3\.\d{1,3}t?")
_LIBRARY_FOLDERS = ("lib", "lib64")


@dataclass(frozen=True)
class PythonFiles:
    """The `real` program of an environment, the links that lead to it, its standard library.

    One that an environment has in itself needs no `folders` of the machine.
    """

    real: Path
    programs: tuple[Path, ...]
    folders: tuple[Path, ...]


def files_of(environment: Path) -> PythonFiles:
    """What the Python of an environment consists of, without shared libraries.

    Raises:
        BuildFailed: the machine has no such Python.
    """
    link = environment / "bin" / "python"
    real, programs = link.resolve(), tuple(_chain(link))
    if real.is_relative_to(environment.resolve()):
        return PythonFiles(real, programs, ())
    name = _library_name(environment)
    prefix = real.parent.parent
    standard = [prefix / folder / name for folder in _LIBRARY_FOLDERS]
    # The build chose the link: a file of the machine that is no Python is not given away.
    if elf.read(real) is None or not any((folder / "os.py").is_file() for folder in standard):
        raise BuildFailed(
            "the machine has no Python where the environment's leads to",
            "remove the environment with `yard gc`; the next build makes it again",
            code="python_not_found",
        )
    found = [folder.resolve() for folder in (*standard, prefix / "include" / name)]
    folders = dict.fromkeys(folder for folder in found if folder.is_dir())
    return PythonFiles(real, programs, tuple(folders))


def is_left_out(name: str) -> bool:
    """Whether a file or folder of a standard library is not needed to run programs."""
    return name in _NOT_NEEDED or name.startswith(("config-", "_tkinter."))


def copy(environment: Path, target: Path) -> None:
    """Copy what the Python of `environment` needs below `target`, with the paths it has here.

    Raises:
        BuildFailed: the machine has no such Python.
    """
    python = files_of(environment)
    for file in (*python.programs, python.real):
        if not file.is_relative_to(environment):
            _put(file, target)
    for folder in python.folders:
        inside = folder.is_relative_to(environment) or not folder.is_dir()
        if not inside and not (target / folder.relative_to("/")).exists():
            _put_folder(folder, target)
    folder = target / LIBRARIES
    folder.mkdir(parents=True, exist_ok=True)
    for name, library in _libraries(python, environment).items():
        shutil.copyfile(library, folder / name)
    linker = target / _LINKER
    linker.parent.mkdir(parents=True, exist_ok=True)
    linker.write_text(f"/{LIBRARIES}\n", encoding="utf-8")


def _chain(link: Path) -> Iterator[Path]:
    """The links between an environment's python and the program."""
    while link.is_symlink():
        link = Path(os.path.normpath(link.parent / os.readlink(link)))
        if link.is_symlink():
            yield link


def _libraries(python: PythonFiles, environment: Path) -> dict[str, Path]:
    """Shared libraries of the program and its extension modules, without those of libc."""
    modules = (file for folder in python.folders for file in sorted(folder.rglob("*.so")))
    needed = libraries.needed_by(
        python.real, (file for file in modules if not _is_left_out(file) and file.is_file())
    )
    top = environment.resolve()
    return {
        name: path
        for name, path in sorted(needed.items())
        if not _OF_C.match(name) and not path.resolve().is_relative_to(top)
    }


def _library_name(environment: Path) -> str:
    """As `python3.11`, the folder of its packages."""
    for folder in sorted((environment / "lib").glob("python3*/site-packages")):
        if _VERSION.fullmatch(folder.parent.name):
            return folder.parent.name
    raise BuildFailed(
        "the environment has no folder of packages",
        "remove the environment with `yard gc`; the next build makes it again",
    )


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
