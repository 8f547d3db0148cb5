"""What routes call of packages above their own.

Owns: the type of each such call; `Hooks` is the only way up.
Leaves: filling it in to app/app_state.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends

from torchyard.assets.deletions import AssetDeletion, DeletionRequest
from torchyard.assets.sources import FindSource
from torchyard.base.dependencies import from_state
from torchyard.workspaces.types import Identity


@dataclass(frozen=True)
class Hooks:
    """Each takes the workspace first, unless it is about a person or the server.

    `resolve_data` returns the URI to keep for a type and path of data. `provision_workspace` gives
    a new workspace what every workspace has from the start; `delete_workspace` refuses one that is
    not empty, and lists what is in it. `check_notifications` refuses recipients of messages that
    are not valid, and returns notices about those that are. `quota_use` returns what a person uses
    now, everyone for an empty name. `stop_unable` stops what runs for a person who may run nothing
    in its workspace any more, and returns which jobs.
    """

    find_model: FindSource
    resolve_data: Callable[[str, str, str], str]
    delete_assets: Callable[[DeletionRequest, Identity], AssetDeletion]
    provision_workspace: Callable[[str], None]
    delete_workspace: Callable[[str], None]
    check_notifications: Callable[[Mapping[str, Any]], list[str]]
    quota_use: Callable[[str, str], dict[str, int]]
    stop_unable: Callable[[str], list[str]]


HooksOf = Annotated[Hooks, Depends(from_state("hooks"))]
