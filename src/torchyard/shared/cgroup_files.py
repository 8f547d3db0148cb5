"""How a file of a cgroup is written, by the runner and by the worker.

Source: Control Group v2, kernel.org/doc/Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import os
from pathlib import Path


def write(file: Path, text: str) -> bool:
    """Whether the kernel took it. A missing file, of a controller that is missing, is not made."""
    try:
        descriptor = os.open(file, os.O_WRONLY)
    except OSError:
        return False
    try:
        return os.write(descriptor, text.encode()) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)
