"""Metrics of a workspace's deployments in Prometheus' text format.

Owns: the route, the names of the metrics and their labels.
Leaves: the text to exposition.py, counting to the router.
Always: who may read the workspace may read them; they name its endpoints and deployments, which
the server's own metrics do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from torchyard.app.monitoring import exposition
from torchyard.app.monitoring.exposition import Family, Sample, number
from torchyard.endpoints.actions import deployments, endpoints
from torchyard.endpoints.records import counts
from torchyard.endpoints.records.counts import Counts
from torchyard.endpoints.router.statistics import BUCKETS_MS
from torchyard.jobs.services import FileServices, RecordServices, ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

_BOUNDS = [*(number(bound / 1000) for bound in BUCKETS_MS), "+Inf"]
_PREFIX = "torchyard_endpoint"

router = APIRouter(tags=["online endpoints"], route_class=GuardedRoute)

DeploymentKey = tuple[str, str]
"""An endpoint and a deployment of it."""


@router.get("/v1/workspaces/{workspace}/endpoint-metrics", response_class=PlainTextResponse)
@needs(Permission.READ)
def endpoint_metrics(services: ServicesOf, workspace: str) -> Response:
    """What the router counted since it was started, by deployment."""
    text = exposition.text_of(families(services, workspace))
    return Response(text, headers={"content-type": exposition.CONTENT_TYPE})


def families(services: FileServices, workspace: str) -> Iterator[Family]:
    counted = {
        (endpoint, deployment): each
        for (workspace_name, endpoint, deployment), each in counts.ask(services.home).items()
        if workspace_name == workspace
    }
    yield from _requests(counted)
    for name, help, value_of in _COUNTERS:
        yield _each(f"{_PREFIX}_{name}_total", help, "counter", counted, value_of)
    for name, help, value_of in _GAUGES:
        yield _each(f"{_PREFIX}_{name}", help, "gauge", counted, value_of)
    yield _instances(services, workspace)


def _requests(counted: Mapping[DeploymentKey, Counts]) -> Iterator[Family]:
    yield _by_status(
        "requests_total",
        "Requests by class of the status that clients got.",
        {deployment: each.requests for deployment, each in counted.items()},
    )
    yield _by_status(
        "refusals_total",
        "Of those, what the router itself answered, by status.",
        {deployment: each.refusals for deployment, each in counted.items()},
    )
    samples: list[Sample] = []
    for deployment, each in counted.items():
        samples += _histogram(_labels(deployment), each.latency, each.latency_sum_s)
    yield Family(
        f"{_PREFIX}_request_duration_seconds",
        "Time from a request's head to the end of the model's answer.",
        "histogram",
        tuple(samples),
    )


def _histogram(labels: Mapping[str, str], latency: Sequence[int], sum_s: float) -> list[Sample]:
    samples, total = [], 0
    for bound, count in zip(_BOUNDS, latency, strict=True):
        total += count
        samples.append(Sample(total, {**labels, "le": bound}, "_bucket"))
    return [*samples, Sample(sum_s, labels, "_sum"), Sample(total, labels, "_count")]


def _by_status(name: str, help: str, values: Mapping[DeploymentKey, Mapping[str, int]]) -> Family:
    samples = [
        Sample(count, {**_labels(deployment), "status": status})
        for deployment, by_status in values.items()
        for status, count in sorted(by_status.items())
    ]
    return Family(f"{_PREFIX}_{name}", help, "counter", tuple(samples))


def _each(
    name: str,
    help: str,
    type: str,
    counted: Mapping[DeploymentKey, Counts],
    value_of: Callable[[Counts], float],
) -> Family:
    samples = (Sample(value_of(each), _labels(deployment)) for deployment, each in counted.items())
    return Family(name, help, type, tuple(samples))


def _instances(services: RecordServices, workspace: str) -> Family:
    samples = []
    for endpoint in endpoints.list_in(services.db, workspace):
        for deployment in deployments.list_in(services.db, workspace, endpoint.name):
            there = deployments.instances_of(services, deployment)
            labels = _labels((endpoint.name, deployment.name))
            for state, count in sorted(Counter(each.state.value for each in there).items()):
                samples.append(Sample(count, {**labels, "state": state}))
    return Family(f"{_PREFIX}_instances", "Instances by state.", "gauge", tuple(samples))


def _labels(deployment: DeploymentKey) -> dict[str, str]:
    return {"endpoint": deployment[0], "deployment": deployment[1]}


_COUNTERS: tuple[tuple[str, str, Callable[[Counts], float]], ...] = (
    ("busy_seconds", "Time in which places for requests had one.", lambda each: each.busy_s),
    ("mirrored", "Copies of requests that were sent to it.", lambda each: each.mirrored),
    ("collected", "Requests that were kept as data.", lambda each: each.collected),
    ("collect_dropped", "Requests that could not be kept.", lambda each: each.collect_dropped),
)
_GAUGES: tuple[tuple[str, str, Callable[[Counts], float]], ...] = (
    ("requests_in_flight", "Requests at work.", lambda each: each.in_flight),
    ("requests_queued", "Requests that wait for a place.", lambda each: each.queued),
)
