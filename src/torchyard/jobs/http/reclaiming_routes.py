"""HTTP: room on the server's disk.

Owns: POST /v1/gc, GET and PATCH /v1/gc/settings.
Leaves: what goes to cleanup/reclaiming.py, what is stored to cleanup/reclaiming_settings.py.
Always: no job's own token opens it, nor one that is good for a single workspace.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base.errors import Forbidden, InvalidInput
from torchyard.jobs.cleanup import reclaiming
from torchyard.jobs.cleanup import reclaiming_settings as settings
from torchyard.jobs.services import Services, ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, TokenKind

Asked = Annotated[dict[str, Any], Body(default_factory=dict)]

router = APIRouter(tags=["server"], route_class=GuardedRoute)


@router.post("/v1/gc")
@needs(Permission.SERVER)
def gc(services: ServicesOf, identity: Person, body: Asked) -> dict[str, Any]:
    _only_the_owner(identity)
    options = dict(body)
    dry_run = options.pop("dry_run", False)
    if not isinstance(dry_run, bool):
        raise InvalidInput("`dry_run` is true or false")
    wishes = settings.wishes(services.home, options)
    work = reclaiming.survey if dry_run else reclaiming.reclaim
    items = work(services, wishes)
    shown = [
        {
            "kind": item.kind,
            "name": item.name,
            "size_bytes": item.size_bytes,
            "action": "kept" if not item.goes else "would go" if dry_run else "removed",
            "why": item.why,
        }
        for item in items
    ]
    freed = sum(item.size_bytes for item in items if item.goes)
    return {"dry_run": dry_run, "freed_bytes": freed, "things": shown}


@router.get("/v1/gc/settings")
@needs(Permission.SERVER)
def stored(services: ServicesOf, identity: Person) -> dict[str, Any]:
    _only_the_owner(identity)
    return _shown(services)


@router.patch("/v1/gc/settings")
@needs(Permission.SERVER)
def store(services: ServicesOf, identity: Person, changes: Asked) -> dict[str, Any]:
    _only_the_owner(identity)
    settings.save(services.home, changes)
    return _shown(services)


def _shown(services: Services) -> dict[str, Any]:
    """What holds when nothing is asked; `stored` names what somebody stored."""
    stored = settings.read(services.home)
    return {**vars(settings.wishes(services.home, {})), "stored": sorted(stored)}


def _only_the_owner(identity: Identity) -> None:
    if identity.kind is not TokenKind.PERSON or identity.workspace:
        raise Forbidden("the server's disk is its owner's", "use the token of its home folder")
