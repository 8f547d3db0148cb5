"""The name under which DeepSpeed imports Nebula.

Owns: nothing.
Leaves: everything to nebulaml.
Always: it has the same names, and they are the same objects.
"""

from __future__ import annotations

from typing import Any

import nebulaml
from nebulaml import __all__ as __all__


def __getattr__(name: str) -> Any:
    return getattr(nebulaml, name)
