"""What only an ordinary user meets: permissions do not hold root back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def as_an_ordinary_user() -> Iterator[Path]:
    """Be one until the end of the block; gives a folder of that user's own."""
    with tempfile.TemporaryDirectory() as name:
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(name, _NOBODY, _NOBODY)
            os.seteuid(_NOBODY)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)
