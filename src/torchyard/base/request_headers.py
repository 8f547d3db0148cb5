"""Headers of a request as the server gets them.

Owns: finding one of them.
Leaves: what it means to those who ask.
Always: the first of several with one name counts; for small requests this is several times faster
than Starlette's mapping, which decodes names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def header(scope: Mapping[str, Any], name: bytes) -> str:
    """
    Args:
        name: in lower case, as servers pass names on.

    Returns:
        Empty when the request does not have it.
    """
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return ""
