"""Create a thin environment for an attempt, on top of a shared one.

Owns: its folder: pyvenv.cfg, links to the interpreter, copies of the console scripts.
Leaves: building the shared environment to the server.
Always: the shared environment is only read; what a job installs goes into the thin environment,
which Python searches first. Creating one takes milliseconds.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Python executes lines of a .pth file that start with `import`. Unlike a plain path, `addsitedir`
# processes the shared folder's own .pth files. The path is written as bytes, because Python reads
# .pth files in the locale's encoding.
_ADD_SHARED = "import os, site; site.addsitedir(os.fsdecode({!r}))\n"
_PTH = "_torchyard_shared.pth"
# Runs at the start of every Python of the environment; does nothing outside of ranks.
_HOOK = 'import os; os.environ.get("TORCHYARD_ERRORS") and __import__("{}").install()\n'
_HOOK_FILES = {
    "_torchyard_rank_hook.py": "rank_hook.py",
    "_torchyard_rank_record.py": "rank_record.py",
    "_torchyard_azure_exit.py": "sdk_v1_exit.py",
    "_torchyard_mlflow.py": "mlflow_client.py",
    "_torchyard_collectives.py": "collectives_hook.py",
    "_torchyard_azure_unsent.py": "sdk_v1_unsent.py",
}
# uv's script finds its folder only in bash and zsh; this one works in every POSIX shell.
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
# Python ignores .pth files in folders on PYTHONPATH, but imports this module, which then runs any
# other `sitecustomize` on the path.
_SITECUSTOMIZE = """\
import importlib.machinery, importlib.util, os, site, sys
_here = os.path.dirname(os.path.abspath(__file__))
site.addsitedir(_here)
_rest = [_path for _path in sys.path if os.path.abspath(_path or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
"""
_IN_RANK = os.path.join(os.path.dirname(os.path.dirname(__file__)), "in_rank")
_ELF = b"\x7fELF"
# uv's environments have them everywhere.
_OF_WINDOWS = (".bat", ".ps1")
_EXCLUDED = ("bin", "lib", "lib64", "include", "pyvenv.cfg", "conda-meta")
_FOLDER_DEPTHS = {"share": 3, "etc": 3}


def create(
    shared: Path, folder: Path, *, rehearsed: bool = False, intercepted: bool = False
) -> Path:
    """Create the thin environment in `folder` and return its `bin`.

    Args:
        rehearsed: add the modules that make torch use the CPU for every GPU; see
            in_rank/rehearsal_hook.py.
        intercepted: add the hook of torch.save; see in_rank/intercept_hook.py.

    Raises:
        OSError: `shared` is not an environment, or writing failed.
    """
    packages = _packages(shared)
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True)
    own_packages = folder / packages.relative_to(shared)
    own_packages.mkdir(parents=True)
    (own_packages / _PTH).write_text(_ADD_SHARED.format(os.fsencode(packages)))
    _put_hook(own_packages)
    if rehearsed:
        _put_rehearsal(own_packages)
    if intercepted:
        _put_interception(own_packages)
    shutil.copyfile(shared / "pyvenv.cfg", folder / "pyvenv.cfg")
    for entry in os.scandir(shared / "bin"):
        if entry.name != "activate" and not entry.name.endswith(_OF_WINDOWS):
            _put_program(entry, str(bin_folder / entry.name))
    quoted = shlex.quote(str(folder))
    (bin_folder / "activate").write_bytes(os.fsencode(_ACTIVATE.format(folder=quoted)))
    for source, name in _data_links(shared):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    return bin_folder


def _packages(shared: Path) -> Path:
    """
    Raises:
        OSError: it is not an environment.
    """
    for name in os.listdir(shared / "lib") if (shared / "lib").is_dir() else ():
        packages = shared / "lib" / name / "site-packages"
        if name.startswith("python3") and packages.is_dir():
            return packages
    raise FileNotFoundError(f"{shared} is not a Python environment")


def put_hooks(folder: Path, *, rehearsed: bool = False, intercepted: bool = False) -> None:
    """Create a folder for PYTHONPATH that adds the hooks to any Python."""
    folder.mkdir(parents=True)
    _put_hook(folder)
    if rehearsed:
        _put_rehearsal(folder)
    if intercepted:
        _put_interception(folder)
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE, encoding="utf-8")


def _put_rehearsal(packages: Path) -> None:
    from torchyard.worker.files import rehearsal  # Few attempts are rehearsals.

    folder = packages / rehearsal.PACKAGE
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name in rehearsal.FILES:
        (folder / name).write_bytes(_source(name))
    (packages / f"{rehearsal.PACKAGE}.pth").write_text(rehearsal.PTH)


def _put_interception(packages: Path) -> None:
    from torchyard.worker.files import interception  # Few attempts have it.

    (packages / f"{interception.MODULE}.py").write_bytes(_source(interception.FILE))
    (packages / f"{interception.MODULE}.pth").write_text(interception.PTH)


def _source(name: str) -> bytes:
    """A file of `in_rank`; if the worker runs from a zip, only the loader can read it."""
    loader: Any = globals()["__loader__"]
    content: bytes = loader.get_data(os.path.join(_IN_RANK, name))
    return content


def _put_hook(packages: Path) -> None:
    """Add the hook that lets the job's Pythons record failures; see in_rank/rank_hook.py."""
    for name, source in _HOOK_FILES.items():
        (packages / name).write_bytes(_source(source))
    (packages / "_torchyard_rank_hook.pth").write_text(_HOOK.format("_torchyard_rank_hook"))


def _put_program(source: os.DirEntry[str], target: str) -> None:
    """Copy a script, link anything else.

    A script runs the Python beside its real path, so a link would run the shared environment's.
    Links to the interpreter are resolved.
    """
    if source.is_symlink():
        link_target = os.readlink(source.path)
        # `python3 -> python` stays a link to its neighbour.
        os.symlink(link_target if "/" not in link_target else os.path.realpath(source), target)
    elif source.is_file():
        with open(source.path, "rb", buffering=0) as file:
            begin = file.read(len(_ELF))
            if begin == _ELF:
                os.symlink(source.path, target)
                return
            content = begin + file.read()
        with open(target, "wb") as file:
            file.write(content)
        # The shared script is read-only; this copy is the job's.
        os.chmod(target, stat.S_IMODE(source.stat().st_mode) | 0o200)


def _data_links(shared: Path) -> Iterator[tuple[Path, str]]:
    """What packages put beside `lib`, such as `share/jupyter`, and find below sys.prefix."""
    for entry in os.scandir(shared):
        if entry.name in _EXCLUDED or not entry.is_dir(follow_symlinks=False):
            continue
        yield from _links(Path(entry.path), entry.name, _FOLDER_DEPTHS.get(entry.name, 1))


def _links(folder: Path, name: str, depth: int) -> Iterator[tuple[Path, str]]:
    """The entries to link; down to `depth`, folders are real, so that jobs can install there."""
    for entry in os.scandir(folder):
        inner_name = f"{name}/{entry.name}"
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _links(Path(entry.path), inner_name, depth - 1)
        else:
            yield Path(entry.path), inner_name
