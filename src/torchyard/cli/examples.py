"""Where the examples lie that commands run or copy.

Owns: their folder, in the wheel and in a clone.
"""

from __future__ import annotations

from pathlib import Path

_IN_WHEEL = Path(__file__).parent / "example_projects"


def folder(name: str) -> Path:
    """The folder of an example, as `examples/` in the repository has it."""
    if _IN_WHEEL.is_dir():
        return _IN_WHEEL / name
    return Path(__file__).parents[3] / "examples" / name
