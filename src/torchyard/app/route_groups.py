"""Which paths each group of routes has, and which modules hold its routes.

Owns: the groups, importing a group's modules when the first request for it comes.
Leaves: which there are to the features, finding a request's group to base/lazy_routes.py, the
routes to their modules.
Always: each module has its routes as `router`; a group that nobody requests is never imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter

from torchyard.base.feature import load
from torchyard.base.lazy_routes import LazyRoutes, add_routes
from torchyard.features import features


@dataclass(frozen=True)
class Group:
    """Routes that are imported together.

    Args:
        modules: below `torchyard`.
        within: a path that all of `paths` are below; see LazyRoutes.
        described: whether OpenAPI describes them.
    """

    paths: Sequence[str]
    modules: Sequence[str]
    within: str = ""
    described: bool = True


_IN_WORKSPACE = "/v1/workspaces/{workspace}"
_OWN = (
    # Those with the most requests come first.
    Group([""], ["mlflow.routes"], within="/mlflow/{workspace}", described=False),
    # For Prometheus, which reads no description.
    Group(
        [f"{_IN_WORKSPACE}/endpoint-metrics"], ["app.monitoring.endpoint_metrics"], described=False
    ),
    Group(["/ui"], ["web.static_routes"], described=False),
)


def groups() -> list[Group]:
    """In the order in which they are asked for a path: `/v1/workspaces` has all that is below it
    and in no group of its own.
    """
    of_features = [
        Group([_whole(path) for path in paths], modules, described=feature.is_described)
        for feature in features()
        for paths, modules in feature.routes.items()
    ]
    of_features.sort(key=lambda group: -max(path.count("/") for path in group.paths))
    return [*_OWN, *of_features]


def _whole(path: str) -> str:
    return path if path[0] == "/" else f"{_IN_WORKSPACE}/{path}"


def lazy_routes() -> list[LazyRoutes]:
    """Every group, ready to be mounted; nothing is imported yet."""
    return [
        LazyRoutes(group.paths, partial(_load, group.modules), group.within, group.described)
        for group in groups()
    ]


def _load(modules: Sequence[str]) -> APIRouter:
    return add_routes(APIRouter(), *(load(f"{module}:router") for module in modules))
