"""An environment of an attempt's own, over a shared one.

Owns: its folder: pyvenv.cfg, links to the interpreter, copies of the console scripts.
Leaves: building the shared environment to the server.
Always: the shared environment is only read; what a job installs goes into its own folder, which
Python looks at first. Made in milliseconds.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Python runs a line of a .pth file that begins with `import`; `addsitedir` makes the shared
# folder's own .pth files work, which a plain path in a .pth file would not. In bytes, because
# Python reads such a file in the encoding of the locale.
_BEHIND = "import os, site; site.addsitedir(os.fsdecode({!r}))\n"
_PTH = "_torchyard_shared.pth"
# Runs at the start of every Python of the environment, and does nothing outside ranks.
_HOOK = 'import os; os.environ.get("TORCHYARD_ERRORS") and __import__("{}").install()\n'
_HOOK_FILES = {
    "_torchyard_rank_hook.py": "rank_hook.py",
    "_torchyard_rank_record.py": "rank_record.py",
    "_torchyard_azure_exit.py": "sdk_v1_exit.py",
    "_torchyard_azure_unsent.py": "sdk_v1_unsent.py",
}
# uv's own would find its folder in bash and zsh only; this one works in every POSIX shell.
_ACTIVATE = """\
# Use the environment of this job in a shell: `. bin/activate`, and later `deactivate`.
deactivate () {{
    PATH="$_OLD_VIRTUAL_PATH"
    export PATH
    unset VIRTUAL_ENV _OLD_VIRTUAL_PATH
    unset -f deactivate
}}
_OLD_VIRTUAL_PATH="${{_OLD_VIRTUAL_PATH:-$PATH}}"
VIRTUAL_ENV={folder}
PATH="$VIRTUAL_ENV/bin:$PATH"
export VIRTUAL_ENV PATH
unset PYTHONHOME
hash -r 2>/dev/null || true
"""
# A folder on PYTHONPATH has its .pth files run by nobody, but Python imports this module; whoever
# else has one of the name gets its turn.
_CUSTOMIZE = """\
import importlib.machinery, importlib.util, os, site, sys
_here = os.path.dirname(os.path.abspath(__file__))
site.addsitedir(_here)
_rest = [_one for _one in sys.path if os.path.abspath(_one or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
"""
_IN_RANK = os.path.join(os.path.dirname(os.path.dirname(__file__)), "in_rank")
_NOT_LINKED = ("bin", "lib", "lib64", "include", "pyvenv.cfg", "conda-meta")
_OWN_FOLDERS = {"share": 3, "etc": 3}


def create(shared: Path, folder: Path, *, rehearsed: bool = False) -> Path:
    """Make the thin environment in `folder`; the answer is its `bin`.

    Args:
        rehearsed: with what makes torch take the CPU for every GPU; see in_rank/rehearsal_hook.py.

    Raises:
        OSError: `shared` is no environment, or the disk says no.
    """
    packages = next((shared / "lib").glob("python3*/site-packages"), None)
    if packages is None:
        raise FileNotFoundError(f"{shared} holds no Python environment")
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True)
    own_packages = folder / packages.relative_to(shared)
    own_packages.mkdir(parents=True)
    (own_packages / _PTH).write_text(_BEHIND.format(os.fsencode(packages)))
    _put_hook(own_packages)
    if rehearsed:
        _put_rehearsal(own_packages)
    shutil.copyfile(shared / "pyvenv.cfg", folder / "pyvenv.cfg")
    for entry in os.scandir(shared / "bin"):
        if entry.name != "activate":
            _put_program(Path(entry.path), bin_folder / entry.name)
    quoted = shlex.quote(str(folder))
    (bin_folder / "activate").write_bytes(os.fsencode(_ACTIVATE.format(folder=quoted)))
    for source, name in _data(shared):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    return bin_folder


def put_hooks(folder: Path, *, rehearsed: bool = False) -> None:
    """Make a folder for PYTHONPATH that does for any Python what `create` does for ours."""
    folder.mkdir(parents=True)
    _put_hook(folder)
    if rehearsed:
        _put_rehearsal(folder)
    (folder / "sitecustomize.py").write_text(_CUSTOMIZE, encoding="utf-8")


def _put_rehearsal(packages: Path) -> None:
    from torchyard.worker.files import rehearsal  # Few attempts are one.

    folder = packages / rehearsal.PACKAGE
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name in rehearsal.FILES:
        (folder / name).write_bytes(_source(name))
    (packages / f"{rehearsal.PACKAGE}.pth").write_text(rehearsal.PTH)


def _source(name: str) -> bytes:
    """A file of `in_rank`; the worker runs from a zip, where only its loader can read it."""
    loader: Any = globals()["__loader__"]
    found: bytes = loader.get_data(os.path.join(_IN_RANK, name))
    return found


def _put_hook(packages: Path) -> None:
    """What lets a Python of the job leave a record of a bad end; see in_rank/rank_hook.py."""
    for name, source in _HOOK_FILES.items():
        (packages / name).write_bytes(_source(source))
    (packages / "_torchyard_rank_hook.pth").write_text(_HOOK.format("_torchyard_rank_hook"))


def _put_program(source: Path, target: Path) -> None:
    """Copy a script, link anything else.

    Scripts find Python beside the place they really are, so that a link would run the shared
    environment's; the interpreter's links are made to what they name in the end.
    """
    if source.is_symlink():
        text = os.readlink(source)
        # `python3 -> python` stays a link to its neighbour.
        target.symlink_to(text if "/" not in text else os.path.realpath(source))
    elif source.is_file():
        with open(source, "rb") as file:
            is_binary = file.read(4) == b"\x7fELF"
        if is_binary:
            target.symlink_to(source)
        else:
            shutil.copy(source, target)
            # The shared one has no write bits; this one is the job's.
            os.chmod(target, os.stat(target).st_mode | 0o200)


def _data(shared: Path) -> Iterator[tuple[Path, str]]:
    """What packages put beside `lib`, as `share/jupyter`: found below sys.prefix by them."""
    for entry in os.scandir(shared):
        if entry.name in _NOT_LINKED or not entry.is_dir(follow_symlinks=False):
            continue
        yield from _links(Path(entry.path), entry.name, _OWN_FOLDERS.get(entry.name, 1))


def _links(folder: Path, name: str, depth: int) -> Iterator[tuple[Path, str]]:
    """What is to be linked, below folders of the attempt's own to this depth.

    There a job may put files of the packages that it installs.
    """
    for entry in os.scandir(folder):
        inner = f"{name}/{entry.name}"
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _links(Path(entry.path), inner, depth - 1)
        else:
            yield Path(entry.path), inner
