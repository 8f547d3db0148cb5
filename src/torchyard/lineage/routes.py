"""HTTP: where a job's data and an asset come from, and what was made of them."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from typing_extensions import TypedDict

from torchyard.data import assets
from torchyard.jobs import actions as jobs
from torchyard.jobs.requests import data_flow
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.lineage import graph
from torchyard.lineage.graph import JOB, Node
from torchyard.lineage.records import Records, data_node, model_node
from torchyard.models import actions as models
from torchyard.pipelines import actions as pipelines
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/lineage", tags=["lineage"], route_class=GuardedRoute
)


class LineageNode(TypedDict):
    """`kind` is `job`, `data`, `model`, `path`, `online-deployment` or `batch-deployment`. Of a
    job `display_name` and `status` are given, which are empty where it was deleted.
    """

    id: str
    kind: str
    name: str
    version: str
    display_name: str
    status: str


class LineageEdge(TypedDict):
    """Ids of nodes; what the source job calls the output, and the target job the input."""

    source: str
    target: str
    output: str
    input: str


class Lineage(TypedDict):
    """`of` are the ids of what was asked for: of a pipeline, its steps' jobs. Nodes come after what
    they were made of; the farthest are left out unless it `is_whole`.
    """

    of: list[str]
    nodes: list[LineageNode]
    edges: list[LineageEdge]
    is_whole: bool


@router.get("/jobs/{name}")
@needs(Permission.READ)
def of_job(services: ServicesOf, workspace: str, name: str) -> Lineage:
    """What a job was made of and what was made of it, as far as the workspace's records tell."""
    job = jobs.get(services, workspace, name)
    records = Records(services, workspace)
    names = [job.name]
    if job.type == pipelines.TYPE:
        names = [step.row.child_name for step in pipelines.steps(services, job)]
    return _lineage(services, workspace, records, [records.job(each) for each in names if each])


@router.get("/data/{name}/versions/{version}")
@needs(Permission.READ)
def of_data(services: ServicesOf, workspace: str, name: str, version: str) -> Lineage:
    """As of a job, of a version of a data asset."""
    node = data_node(assets.get(services.db, workspace, name, version))
    return _lineage(services, workspace, Records(services, workspace), [node])


@router.get("/models/{name}/versions/{version}")
@needs(Permission.READ)
def of_model(services: ServicesOf, workspace: str, name: str, version: str) -> Lineage:
    """As of a job, of a version of a model."""
    node = model_node(models.get(services.db, workspace, name, version))
    return _lineage(services, workspace, Records(services, workspace), [node])


def _lineage(
    services: RecordServices, workspace: str, records: Records, of: Sequence[Node]
) -> Lineage:
    found = graph.around(list(dict.fromkeys(of)), records.edges())
    names = [node.name for node in found.nodes if node.kind == JOB]
    with services.db.read() as connection:
        states = data_flow.states(connection, workspace, names)
    nodes: list[LineageNode] = []
    for node in found.nodes:
        state = states.get(node.name) if node.kind == JOB else None
        nodes.append(
            {
                "id": node.id,
                "kind": node.kind,
                "name": node.name,
                "version": node.version,
                "display_name": state.display_name if state else "",
                "status": state.status if state else "",
            }
        )
    edges: list[LineageEdge] = [
        {
            "source": edge.source.id,
            "target": edge.target.id,
            "output": edge.output,
            "input": edge.input,
        }
        for edge in found.edges
    ]
    return {
        "of": [node.id for node in found.of],
        "nodes": nodes,
        "edges": edges,
        "is_whole": found.is_whole,
    }
