"""Workspaces of the server, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Workspace(Resource):
    """A workspace.

    Args:
        id: Azure's resource path of it.
        retention_days: jobs that ended longer ago are deleted; 0 keeps them for ever.
        rehearse_on_cpu: jobs are rehearsed on the CPU unless they say otherwise.
        allow_substitutes: whether torchyard's own environments may take the place of Azure ML's
            published ones; None leaves it to the server.
        max_processes: processes and threads of a job on each node; 0 is torchyard's own limit.
        disk_quota_mb: MiB that a job may write on each node; 0 for no limit.
        network: what jobs connect to at most, `open`, `workspace` or `none`.
        auto_compute: whether jobs may have `compute: auto`.
        notification_settings: who gets e-mail of the end of every job, as in a job file.
        notify: webhooks of the end of every job, as `torchyard: {notify: …}` of a job file.
        notify_secrets: names of the secrets that `notify` has; their values are not shown.
        raw: also the keys of Azure ML's schema that were set and have no effect here.
    """

    _making: ClassVar[str] = """write `client.workspaces.create({"name": "vision"})`"""

    id: str
    name: str
    subscription_id: str
    resource_group: str
    location: str
    display_name: str
    description: str
    tags: Mapping[str, str]
    retention_days: int
    rehearse_on_cpu: bool
    allow_substitutes: bool | None
    max_processes: int
    disk_quota_mb: int
    network: str
    auto_compute: bool
    notification_settings: Mapping[str, Any]
    notify: Sequence[Mapping[str, Any]]
    notify_secrets: Sequence[str]
    created_at: datetime

    _shown = ("name", "description")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UrlMap(Resource):
    """URLs that begin with `prefix` are read from `target`, `azureml://datastores/…`."""

    prefix: str
    target: str

    _shown = ("prefix", "target")


class Workspaces:
    """Workspaces of the server, and their maps of URLs.

    Example::

        client.workspaces.create({"name": "vision"})
        client = Client(workspace="vision")
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, document: Mapping[str, Any]) -> Workspace:
        """Create the workspace `document["name"]`, with a compute and datastores of its own.

        Raises:
            Conflict: there is one of this name.
        """
        return _workspace(self._transport.post("/v1/workspaces", dict(document)))

    def list(self) -> Listing[Workspace]:
        """All workspaces that you may see."""
        response = self._transport.get("/v1/workspaces")
        return Listing(_workspace(row) for row in response["value"])

    def get(self, name: str) -> Workspace:
        """One workspace.

        Raises:
            NotFound: the workspace does not exist.
        """
        return _workspace(self._transport.get(_workspace_path(name)))

    def update(self, name: str, changes: Mapping[str, Any]) -> Workspace:
        """Change a workspace's settings.

        Args:
            changes: some of `display_name`, `description`, `tags` (merged; None removes one),
                `retention_days`, `rehearse_on_cpu`, `notification_settings`, `notify`,
                `notify_secrets` (values by name, merged; None removes one) and, for owners
                only, `allow_substitutes`, `max_processes`, `disk_quota_mb`, `network`,
                `auto_compute`; see `Workspace`.

        Raises:
            InvalidSpec: a value is wrong.
            NotFound: the workspace does not exist.
            Forbidden: you may not change it.
        """
        return _workspace(self._transport.call("PATCH", _workspace_path(name), dict(changes)))

    def delete(self, name: str) -> None:
        """Delete an empty workspace.

        Raises:
            NotFound: the workspace does not exist.
            Conflict: there are jobs, data or other things in it; the message lists them.
        """
        self._transport.delete(_workspace_path(name))

    def url_maps(self, name: str) -> Listing[UrlMap]:
        """Which URLs are read from a datastore instead."""
        response = self._transport.get(f"{_workspace_path(name)}/url-maps")
        return Listing(_url_map(row) for row in response["value"])

    def map_url(self, name: str, prefix: str, target: str) -> UrlMap:
        """Read URLs that begin with `prefix` from `target`, `azureml://datastores/…`."""
        body = {"prefix": prefix, "target": target}
        return _url_map(self._transport.put(f"{_workspace_path(name)}/url-maps", body) or body)

    def unmap_url(self, name: str, prefix: str) -> None:
        """Undo `map_url`."""
        self._transport.delete(f"{_workspace_path(name)}/url-maps", {"prefix": prefix})


def _workspace(raw: Json) -> Workspace:
    return Workspace(
        raw=raw,
        id=read.text(raw, "id"),
        name=raw["name"],
        subscription_id=read.text(raw, "subscription_id"),
        resource_group=read.text(raw, "resource_group"),
        location=read.text(raw, "location"),
        display_name=read.text(raw, "display_name"),
        description=read.text(raw, "description"),
        tags=dict(raw.get("tags") or {}),
        retention_days=read.integer_at(raw, "retention_days"),
        rehearse_on_cpu=bool(raw.get("rehearse_on_cpu")),
        allow_substitutes=raw.get("allow_substitutes"),
        max_processes=read.integer_at(raw, "max_processes"),
        disk_quota_mb=read.integer_at(raw, "disk_quota_mb"),
        network=read.text(raw, "network"),
        auto_compute=bool(raw.get("auto_compute")),
        notification_settings=dict(raw.get("notification_settings") or {}),
        notify=list(raw.get("notify") or ()),
        notify_secrets=list(raw.get("notify_secrets") or ()),
        created_at=read.moment(raw, "created_at"),
    )


def _url_map(raw: Json) -> UrlMap:
    return UrlMap(raw=raw, prefix=raw["prefix"], target=raw["target"])


def _workspace_path(name: str) -> str:
    return f"/v1/workspaces/{quote(name, safe='')}"
