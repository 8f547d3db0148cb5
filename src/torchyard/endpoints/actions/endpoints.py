"""What can be done with online endpoints.

Owns: creating, changing, listing and deleting them; their traffic; who may change them.
Leaves: their file's grammar to spec/, deployments to deployments.py, keys to credentials.py, the
router's table and the end of a deletion to running/.
Always: traffic names deployments that exist, and adds up to 0 or 100; an endpoint is changed by its
owner or by a contributor of the workspace; who takes it over gets new keys, as the owner before
knows the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base.errors import Conflict, InvalidSpec
from torchyard.endpoints import tokens
from torchyard.endpoints.actions.endpoint_kind import EndpointKind
from torchyard.endpoints.records import news, store
from torchyard.endpoints.records.types import AuthMode, Endpoint, ProvisioningState
from torchyard.endpoints.spec import endpoint_spec
from torchyard.endpoints.spec.endpoint_spec import EndpointSpec
from torchyard.workspaces import ownership


class OnlineEndpoints(EndpointKind[Endpoint]):
    word = "online"
    noun = "endpoint"
    rule = ownership.ENDPOINT
    in_columns = ("traffic", "mirror_traffic")
    signal = news.ENDPOINTS
    make = Endpoint
    rows = store.endpoint_rows
    deployment_rows = store.deployment_rows
    read = staticmethod(endpoint_spec.read)

    def columns(self, spec: EndpointSpec, old: Endpoint | None, names: list[str]) -> dict[str, Any]:
        traffic: Mapping[str, int] = {}
        mirror: Mapping[str, int] = {}
        name, state = spec.name, ProvisioningState.SUCCEEDED
        if old is not None:
            _refuse_deleting(old)
            traffic, mirror = old.traffic, old.mirror_traffic
            name, state = old.name, ProvisioningState.UPDATING
        if spec.traffic is not None:
            traffic = _check_shares("traffic", spec.traffic, names, name)
        if spec.mirror_traffic is not None:
            mirror = _check_shares("mirror_traffic", spec.mirror_traffic, names, name)
        for deployment, share in mirror.items():
            if share and traffic.get(deployment):
                raise InvalidSpec(
                    f"`{deployment}` has traffic and mirrored traffic",
                    "mirror to a deployment that has none",
                    at=("mirror_traffic", deployment),
                )
        return {
            "auth_mode": AuthMode(spec.auth_mode),
            "traffic": dict(traffic),
            "mirror_traffic": dict(mirror),
            "state": state,
            "message": "",
        }

    def give_owner(self, connection: Connection, endpoint: Endpoint) -> None:
        store.put_keys(connection, endpoint, tokens.new_keys())

    def remove(self, connection: Connection, endpoint: Endpoint, now: datetime) -> Endpoint:
        """It is gone once the instances of its deployments have ended."""
        deployments = store.deployments_in(connection, endpoint.workspace, endpoint.name)
        if not deployments:
            store.remove_endpoint(connection, endpoint)
        deleting: dict[str, Any] = {"state": ProvisioningState.DELETING, "changed_at": now}
        values = {**deleting, "traffic": {}, "mirror_traffic": {}}
        self.rows.change(connection, endpoint, **values)
        for deployment in deployments:
            store.change_deployment(connection, deployment, **deleting)
        return replace(endpoint, **values)


ONLINE = OnlineEndpoints()
create, update, delete = ONLINE.create, ONLINE.update, ONLINE.delete
get, named, list_in = ONLINE.get, ONLINE.named, ONLINE.list_in
refuse_foreign = ONLINE.refuse_foreign


def _check_shares(
    key: str, shares: Mapping[str, int], names: list[str], endpoint: str
) -> dict[str, int]:
    """The shares by the deployments' own names, without those of 0."""
    by_name = {name.lower(): name for name in names}
    for name in shares:
        if name.lower() not in by_name:
            raise ONLINE.no_deployment(endpoint, name, names, (key, name))
    return {by_name[name.lower()]: share for name, share in shares.items() if share}


def _refuse_deleting(endpoint: Endpoint) -> None:
    if endpoint.state is ProvisioningState.DELETING:
        raise Conflict(
            f"endpoint `{endpoint.name}` is being deleted",
            "wait until it is gone, or use another name",
            code="endpoint_being_deleted",
        )
