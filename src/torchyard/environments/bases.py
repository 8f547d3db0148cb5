"""The environments that an environment made from a Dockerfile starts from.

Owns: which one the image as a whole is based on, and what that one is based on in turn.
Leaves: reading FROM lines to images/dockerfile.py, building to build/image_builder.py.
Always: a base is named with its version, as it was when the spec was resolved.
"""

from __future__ import annotations

from torchyard.environments.types import EnvironmentSpec


def of(spec: EnvironmentSpec) -> list[str]:
    """`name:version` of the base, then of its own base, and so on; empty without one."""
    if spec.image is None:
        return []
    base = dict(spec.image.bases).get(spec.image.base)
    return [] if base is None else [base.ref or base.hash[:12], *of(base)]


def one_line(spec: EnvironmentSpec) -> str:
    """The bases in one line, the nearest first; empty without one."""
    return " > ".join(of(spec))
