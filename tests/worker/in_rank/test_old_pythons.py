"""What runs inside the user's Python is understood by the oldest ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import other_pythons
from torchyard.worker import in_rank

FOLDER = Path(in_rank.__file__).parent
COMPILE = """
import sys
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        compile(file.read(), name, "exec")
"""


def _compile(version: str, files: list[Path]) -> None:
    assert files
    python = other_pythons.python(version)
    ran = subprocess.run(
        [python, "-I", "-c", COMPILE, *map(str, files)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_file_compiles_under_the_oldest_python() -> None:
    files = set(FOLDER.glob("*.py")) - set(FOLDER.glob("rehearsal_*.py"))
    _compile(other_pythons.IN_RANK, sorted(files))


def test_every_file_of_a_rehearsal_compiles_under_the_oldest_that_may_rehearse() -> None:
    _compile(other_pythons.REHEARSAL, sorted(FOLDER.glob("rehearsal_*.py")))
