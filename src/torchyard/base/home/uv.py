"""Where uv is.

Owns: finding it.
Leaves: running it to environments/ and executors/ray/.
"""

from __future__ import annotations

import shutil

from torchyard.base.errors import BuildFailed


def find_uv() -> str:
    """The uv that is installed with torchyard, else the one on the PATH."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        program = shutil.which("uv")
        if program is None:
            raise BuildFailed("`uv` is not installed", "install it with `pip install uv`") from None
        return program
