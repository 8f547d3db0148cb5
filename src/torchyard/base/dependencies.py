"""What route functions receive by FastAPI's `Depends`: parts of the server, kept in `app.state`.

Leaves: filling `app.state` to app/app_state.py, parts of other types to their packages.
Always: a dependency is a coroutine, so that it costs no thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from torchyard.base.blobs import Blobs
from torchyard.base.bodies.handover import Handover
from torchyard.base.clock import Clock
from torchyard.base.db import Database


def from_state(name: str) -> Callable[[Request], Awaitable[Any]]:
    """The dependency that returns `app.state.<name>`."""

    async def read(request: Request) -> Any:
        return getattr(request.app.state, name)

    return read


async def _blobs_of_workspace(request: Request) -> Blobs:
    """Those of the workspace that the path names."""
    blobs: Blobs = request.app.state.blobs.of(request.path_params["workspace"])
    return blobs


DatabaseOf = Annotated[Database, Depends(from_state("db"))]
ClockOf = Annotated[Clock, Depends(from_state("clock"))]
BlobsOf = Annotated[Blobs, Depends(_blobs_of_workspace)]
HandoverOf = Annotated[Handover, Depends(from_state("handover"))]
HomeOf = Annotated[Path, Depends(from_state("home"))]
