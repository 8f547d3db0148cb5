"""HTTP: space on the server's disk.

Owns: POST /v1/gc, GET and PATCH /v1/gc/settings, GET /v1/disk.
Leaves: what is removed to cleanup/reclaiming.py, stored settings to
cleanup/reclaiming_settings.py, measuring to cleanup/disk_use.py.
Always: a job's token, or one for a single workspace, has no access.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base.errors import Forbidden, InvalidInput
from torchyard.jobs.cleanup import disk_use, reclaiming
from torchyard.jobs.cleanup import reclaiming_settings as settings
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, TokenKind

JsonBody = Annotated[dict[str, Any], Body(default_factory=dict)]

router = APIRouter(tags=["server"], route_class=GuardedRoute)


@router.post("/v1/gc")
@needs(Permission.SERVER)
def gc(services: ServicesOf, identity: Person, body: JsonBody) -> dict[str, Any]:
    _only_the_owner(identity)
    options = dict(body)
    dry_run = options.pop("dry_run", False)
    if not isinstance(dry_run, bool):
        raise InvalidInput("`dry_run` must be true or false")
    gc_options = settings.options(services.home, options)
    work = reclaiming.survey if dry_run else reclaiming.reclaim
    items = work(services, gc_options)
    shown = [
        {
            "kind": item.kind,
            "name": item.name,
            "size_bytes": item.size_bytes,
            "action": "kept" if not item.remove else "would go" if dry_run else "removed",
            "why": item.reason,
        }
        for item in items
    ]
    freed = sum(item.size_bytes for item in items if item.remove)
    return {"dry_run": dry_run, "freed_bytes": freed, "things": shown}


@router.get("/v1/gc/settings")
@needs(Permission.SERVER)
def stored(services: ServicesOf, identity: Person) -> dict[str, Any]:
    _only_the_owner(identity)
    return _settings_json(services.home)


@router.patch("/v1/gc/settings")
@needs(Permission.SERVER)
def store(services: ServicesOf, identity: Person, changes: JsonBody) -> dict[str, Any]:
    _only_the_owner(identity)
    settings.save(services.home, changes)
    return _settings_json(services.home)


@router.get("/v1/disk")
@needs(Permission.SERVER)
def disk(services: ServicesOf, identity: Person, limit: int = 10) -> dict[str, Any]:
    _only_the_owner(identity)
    if not 1 <= limit <= 1000:
        raise InvalidInput(f"`limit` must be between 1 and 1000, not {limit}")
    use = disk_use.measure(services)
    return {
        "total_bytes": use.total_bytes,
        "free_bytes": use.free_bytes,
        "kinds": [{"kind": kind, "size_bytes": size} for kind, size in use.by_kind().items()],
        "owners": [{"owner": owner, "size_bytes": size} for owner, size in use.by_owner().items()],
        "largest": [dict(vars(item)) for item in use.items[:limit]],
    }


def _settings_json(home: Path) -> dict[str, Any]:
    """The defaults of a request; `stored` names those that were changed."""
    stored = settings.read(home)
    return {**vars(settings.options(home, {})), "stored": sorted(stored)}


def _only_the_owner(identity: Identity) -> None:
    if identity.kind is not TokenKind.PERSON or identity.workspace:
        raise Forbidden("the server's disk is its owner's", "use the token of its home folder")
