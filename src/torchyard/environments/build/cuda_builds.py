"""Which CUDA the torch and the torchaudio of a folder are built for.

Owns: reading it from the modules that their wheels write at their build.
Leaves: what a lock says of it to version_labels.py.
Always: nothing is imported or run; a file that says nothing gives None.
"""

from __future__ import annotations

import re
from pathlib import Path

# `cuda = '10.2'`, `cuda: Optional[str] = None`.
_TORCH = re.compile(r"^cuda\b[^=\n]{0,40}= ?(?:None|'(?P<cuda>\d{1,3}\.\d{1,3})')", re.MULTILINE)
# `__version__ = '2.11.0+cu130'`
_TORCHAUDIO = re.compile(
    r"^__version__ = '[\d.a-z]{1,40}\+(?:cpu|cu(?P<major>\d{1,3})(?P<minor>\d))'", re.MULTILINE
)
_LONGEST = 1 << 16


def of_torch(site_packages: Path) -> str | None:
    """As `13.0`; empty for a build without, None where no torch says it."""
    match = _TORCH.search(_read(site_packages / "torch" / "version.py"))
    return None if match is None else match["cuda"] or ""


def of_torchaudio(site_packages: Path) -> str | None:
    """As `of_torch`."""
    match = _TORCHAUDIO.search(_read(site_packages / "torchaudio" / "version.py"))
    if match is None:
        return None
    return f"{match['major']}.{match['minor']}" if match["major"] else ""


def _read(file: Path) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read(_LONGEST)
    except OSError:
        return ""
