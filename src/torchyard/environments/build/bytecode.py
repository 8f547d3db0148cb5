"""Compiled modules of an environment, shared with every other that has the same source.

Owns: which Python compiles them, where they are in the store, the programs that link, list, compile
and take them over.
Leaves: when they are compiled to compiling.py, as whom to the makers of builds.py, removing the
store to packages/caches.py.
Always: nothing of the environment is run: its `.pth` files aren't read, and the Python that
compiles is the one that its `bin/python` leads to, whatever its `pyvenv.cfg` says.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base import leash
from torchyard.environments.build import bytecode_links, bytecode_program
from torchyard.environments.packages.uv import Uv

# The first Python that checks a compiled module by its source's hash is 3.7.
_WITHOUT_HASHES = ("3.6",)
_PYTHON = re.compile(r"python(3\.\d{1,3}t?)")
_ASK = "import importlib.util as u, sys; print(sys.implementation.cache_tag, u.MAGIC_NUMBER.hex())"
_ASK_S, _LIBRARIES = 60.0, ("LD_LIBRARY_PATH",)
_ANSWER = re.compile(r"([a-z]{1,20}-[0-9]{2,5}[a-z]{0,4}) ([0-9a-f]{4})[0-9a-f]{4}\n")


@dataclass(frozen=True)
class Modules:
    """Where the modules of an environment are, and its Python.

    Args:
        store: the folder of that Python in the store; None where they are the environment's alone.
    """

    packages: Path
    program: Path
    tag: str
    store: Path | None

    def request(self, *, may_link: bool, first: Sequence[str]) -> dict[str, Any]:
        """What bytecode_links.py reads, but for `is_idle`."""
        store = "" if self.store is None else str(self.store)
        names = {"packages": str(self.packages), "store": store, "tag": self.tag}
        return {**names, "may_link": may_link, "first": list(first)}


def find(folder: Path, store: Path, is_strangers: bool) -> Modules | None:
    """The modules of an environment; None where they are not compiled beside it.

    Args:
        store: that of all environments.
        is_strangers: whether others made the environment. Then a Python within it is not run by
            this user, and what it compiles is the environment's alone; one outside was found
            to be nobody's but root's or this user's when the environment was taken over.

    Raises:
        OSError: its Python can't be asked.
    """
    packages = next((folder / "lib").glob("python3*/site-packages"), None)
    match = _PYTHON.fullmatch(packages.parent.name) if packages is not None else None
    if packages is None or match is None or match[1] in _WITHOUT_HASHES:
        return None
    program = (folder / "bin" / "python").resolve()
    if is_strangers and program.is_relative_to(folder.resolve()):
        return Modules(packages, program, f"cpython-{match[1].replace('.', '')}", None)
    tag, magic = _ask(program)
    return Modules(packages, program, tag, store / f"{tag}-{magic}")


def compile_by_time(site_packages: Path, python: str, uv: Uv, working: Path) -> None:
    """Compile the modules of an old Python, which checks them by the times of their sources."""
    if python not in _WITHOUT_HASHES:
        return
    words = ["venv/bin/python", "-I", "-S", "-B"]
    words += ["-m", "compileall", "-qq", "-j", "0", str(site_packages)]
    # It fails for every file that is for another Python, such as a template.
    uv.run_program(words, working, "python -m compileall")


def links_command(verb: str, request: Path) -> list[str]:
    """The program that this user runs: `list` or `take`."""
    return [sys.executable, "-I", "-S", "-B", str(bytecode_links.__file__), verb, str(request)]


def compile_command(modules: Modules, request: Path) -> list[str]:
    """The program that writes compiled modules to its output, run by the environment's Python."""
    program = str(bytecode_program.__file__)
    return [str(modules.program), "-I", "-S", "-B", program, str(request)]


def write(file: Path, request: dict[str, Any]) -> None:
    """Write a request for these programs."""
    file.write_text(json.dumps(request), encoding="ascii")


@functools.lru_cache(maxsize=64)
def _ask(program: Path) -> tuple[str, str]:
    """The tag and the magic number of a Python.

    Raises:
        OSError: it can't be run, or says something else.
    """
    words = [str(program), "-I", "-S", "-B", "-c", _ASK]
    libraries = {name: os.environ[name] for name in _LIBRARIES if name in os.environ}
    try:
        answer = _ANSWER.fullmatch(leash.run(words, _ASK_S, libraries).stdout)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"`{program}` does not answer") from error
    if answer is None:
        raise OSError(f"`{program}` does not say which Python it is")
    return answer[1], answer[2]
