"""What the program of a rank tells the user beside its log.

Owns: the file in which it does, one notice a line.
Leaves: where the folder is to context.py, showing notices to the server.
Always: however much a program writes, few and short notices are read.
"""

from __future__ import annotations

from pathlib import Path

from torchyard.worker.diagnosis import artifacts

FILE = "notices.txt"
_MOST = 10
_LONGEST = 2000


def read(folder: Path) -> list[str]:
    """
    Args:
        folder: of the rank's records.
    """
    text = artifacts.text_of(folder / FILE)
    return [line[:_LONGEST] for line in text.splitlines()[:_MOST] if line.strip()]
