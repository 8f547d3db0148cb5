"""Compiled modules of an environment, shared with every other that has the same source.

Owns: running bytecode_program.py in the environment's Python, Pythons that are too old for it.
Leaves: the cache's place to packages/uv.py, its removal to packages/caches.py.
Always: nothing of the environment is run: its `.pth` files aren't read.
"""

from __future__ import annotations

from pathlib import Path

from torchyard.environments.build import bytecode_program
from torchyard.environments.packages.uv import Uv, failure

# The first Python that checks a compiled module by its source's hash.
_WITHOUT_HASHES = ("3.6",)


def put(site_packages: Path, python: str, uv: Uv, working: Path) -> None:
    """Compile what no earlier build has compiled, and link all into `site_packages`.

    Args:
        python: the version of `working`/venv's Python, as `3.11`.

    Raises:
        BuildFailed: the disk is full, or the cache can't be written.
    """
    words = ["venv/bin/python", "-I", "-S", "-B"]
    if python in _WITHOUT_HASHES:
        words += ["-m", "compileall", "-qq", "-j", "0", str(site_packages)]
        # It fails for every file that is for another Python, such as a template.
        uv.run_program(words, working, "python -m compileall")
        return
    program = Path(bytecode_program.__file__)
    words += [str(program), str(site_packages), str(uv.bytecode_cache)]
    if not uv.may_link:
        words.append("--copy")
    outcome = uv.run_program(words, working, "compile modules")
    if outcome.code != 0:
        raise failure(outcome, "the modules can't be compiled")
