"""HTTP: room on the server's disk.

Owns: POST /v1/gc.
Leaves: what goes to reclaiming.py.
Always: no job's own token opens it, nor one that is good for a single workspace.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base.errors import Forbidden, InvalidInput
from torchyard.jobs import reclaiming
from torchyard.jobs.reclaiming import DAY_S, Wishes
from torchyard.jobs.room import Room
from torchyard.workspaces.access import Person
from torchyard.workspaces.types import TokenKind

_MOST = 1 << 60


def router(room: Room) -> APIRouter:
    routes = APIRouter(tags=["server"])

    @routes.post("/v1/gc")
    def gc(
        identity: Person,
        dry_run: Annotated[bool, Body()] = False,
        older_than_s: Annotated[float, Body()] = 14 * DAY_S,
        budget_bytes: Annotated[int | None, Body()] = None,
        logs_bytes: Annotated[int | None, Body()] = None,
    ) -> dict[str, Any]:
        if identity.kind is not TokenKind.PERSON or identity.workspace:
            raise Forbidden("the server's disk is its owner's", "use the token of its home folder")
        for name, value in (
            ("older_than_s", older_than_s),
            ("budget_bytes", budget_bytes),
            ("logs_bytes", logs_bytes),
        ):
            if value is not None and not 0 <= value <= _MOST:
                raise InvalidInput(f"`{name}` is out of range", "write a number from 0 on")
        wishes = Wishes(older_than_s, budget_bytes, logs_bytes)
        work = reclaiming.survey if dry_run else reclaiming.reclaim
        things = work(room, wishes)
        shown = [
            {
                "kind": thing.kind,
                "name": thing.name,
                "size_bytes": thing.size_bytes,
                "action": "kept" if not thing.goes else "would go" if dry_run else "removed",
                "why": thing.why,
            }
            for thing in things
        ]
        freed = sum(thing.size_bytes for thing in things if thing.goes)
        return {"dry_run": dry_run, "freed_bytes": freed, "things": shown}

    return routes
