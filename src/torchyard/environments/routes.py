"""Environments over HTTP.

Owns: routes below a workspace's `/environments`.
Leaves: what they answer to to_json.py, what they do to assets.py and requested_builds.py.
Always: nothing is decided here.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from fastapi.responses import StreamingResponse

from torchyard.base import fields
from torchyard.base.db import Database
from torchyard.base.dependencies import ClockOf, from_state
from torchyard.data.deletion import add_archive_routes, add_delete_routes
from torchyard.environments import assets, copying, image_export, to_json
from torchyard.environments.assembly import Environments
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

EnvironmentsOf = Annotated[Environments, Depends(from_state("environments"))]
BuildsOf = Annotated[RequestedBuilds, Depends(from_state("builds"))]

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/environments",
    tags=["environments"],
    route_class=GuardedRoute,
)


@router.get("")
@needs(Permission.READ)
def list_environments(
    environments: EnvironmentsOf, workspace: str, name: str = "", archived: str = ""
) -> dict[str, Any]:
    listed = to_json.list_json(environments, workspace, name, fields.archived(archived))
    return {"value": listed}


@router.post("", status_code=201)
@needs(Permission.WRITE)
def create(
    environments: EnvironmentsOf,
    clock: ClockOf,
    workspace: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    request = assets.read_document(fields.mapping(document, "the environment's document"))
    asset = assets.register(
        environments.db,
        clock,
        workspace,
        request,
        identity.user,
        lambda definition: environments.resolver.resolve(definition, workspace),
    )
    return to_json.version_to_json(environments, workspace, asset.name, asset.version)


@router.post("/definition")
@needs(Permission.READ)
def definition(
    environments: EnvironmentsOf, workspace: str, environment: Annotated[str, Body(embed=True)]
) -> dict[str, Any]:
    return vars(copying.resolve_reference(environments, workspace, environment))


@router.post("/clone", status_code=201)
@needs(Permission.WRITE)
def clone(
    environments: EnvironmentsOf,
    clock: ClockOf,
    workspace: str,
    identity: Person,
    environment: Annotated[str, Body(embed=True)],
    name: Annotated[str, Body(embed=True)],
) -> dict[str, Any]:
    source = copying.resolve_reference(environments, workspace, environment)
    asset = copying.clone(environments, clock, workspace, source, name, identity.user)
    body = to_json.version_to_json(environments, workspace, asset.name, asset.version)
    return {**body, "notices": [*source.notices, *body["notices"]]}


@router.get("/{name}/versions/{version}")
@needs(Permission.READ)
def show(environments: EnvironmentsOf, workspace: str, name: str, version: str) -> dict[str, Any]:
    return to_json.version_to_json(environments, workspace, name, version)


@router.post("/resolve")
@needs(Permission.READ)
def resolve(
    environments: EnvironmentsOf, workspace: str, environment: Annotated[Any, Body(embed=True)]
) -> dict[str, Any]:
    return to_json.resolved_json(environments, workspace, environment)


@router.post("/build")
@needs(Permission.WRITE)
def build(
    environments: EnvironmentsOf,
    builds: BuildsOf,
    workspace: str,
    environment: Annotated[Any, Body(embed=True)],
    base: Annotated[str, Body(embed=True)] = "",
) -> dict[str, Any]:
    """`base` is an image that the environment is put over, for an export of both."""
    spec = image_export.spec_of(environments, workspace, environment, base)
    environments.builds.refuse_impossible(spec)
    return builds.begin(spec)


@router.post("/use")
@needs(Permission.WRITE)
def use(
    environments: EnvironmentsOf, workspace: str, environment: Annotated[Any, Body(embed=True)]
) -> dict[str, Any]:
    return copying.use(environments, workspace, environment)


@router.post("/export")
@needs(Permission.READ)
def export(
    environments: EnvironmentsOf,
    workspace: str,
    environment: Annotated[Any, Body(embed=True)],
    format: Annotated[str, Body(embed=True)],
) -> dict[str, Any]:
    return copying.export_to_file(environments, workspace, environment, format)


@router.post("/image")
@needs(Permission.READ)
def plan_image(
    environments: EnvironmentsOf,
    workspace: str,
    environment: Annotated[Any, Body(embed=True)],
    base: Annotated[str, Body(embed=True)] = "",
) -> dict[str, Any]:
    """What an OCI image of a built environment will be."""
    return image_export.plan(environments, workspace, environment, base)


@router.post("/image/layer")
@needs(Permission.READ)
def read_image_layer(
    environments: EnvironmentsOf,
    workspace: str,
    environment: Annotated[Any, Body(embed=True)],
    hash: Annotated[str, Body(embed=True)],
    layer: Annotated[str, Body(embed=True)],
    base: Annotated[str, Body(embed=True)] = "",
) -> StreamingResponse:
    """The tar of one layer of it; a header says how large its files are."""
    stream = image_export.layer(environments, workspace, environment, base, hash, layer)
    return StreamingResponse(
        stream.blocks,
        media_type="application/vnd.oci.image.layer.v1.tar",
        headers={"X-Torchyard-Files-Bytes": str(stream.size_bytes)},
    )


@router.get("/builds/{hash}")
@needs(Permission.READ)
def follow(builds: BuildsOf, workspace: str, hash: str, offset: int = 0) -> dict[str, Any]:
    return builds.show(hash, offset)


def _archive(
    db: Database, workspace: str, name: str, version: str, archived: bool, user: str
) -> dict[str, Any]:
    return to_json.asset_to_json(assets.archive(db, workspace, name, version, archived, user=user))


add_archive_routes(router, "", _archive)
add_delete_routes(router, "", "environment")
