"""What can be done with batch endpoints.

Owns: creating, changing, listing and deleting them; which deployment is their default; who may
change them.
Leaves: their file's grammar to spec/, deployments to deployments.py, jobs to invocations.py.
Always: a default names a deployment that exists; an endpoint is changed by its owner or by a
contributor of the workspace.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.batch_endpoints.records import store
from torchyard.batch_endpoints.records.types import BatchEndpoint
from torchyard.batch_endpoints.spec import endpoint_spec
from torchyard.batch_endpoints.spec.endpoint_spec import EndpointSpec
from torchyard.endpoints.actions.endpoint_kind import EndpointKind
from torchyard.workspaces import ownership


class BatchEndpoints(EndpointKind[BatchEndpoint]):
    word = "batch"
    noun = "batch endpoint"
    rule = ownership.BATCH_ENDPOINT
    in_columns = ("defaults",)
    make = BatchEndpoint
    rows = store.endpoint_rows
    deployment_rows = store.deployment_rows
    read = staticmethod(endpoint_spec.read)

    def columns(
        self, spec: EndpointSpec, old: BatchEndpoint | None, names: list[str]
    ) -> dict[str, Any]:
        default = spec.default_deployment
        if default is None:
            default = "" if old is None else old.default_deployment
        elif default:
            # By the deployment's own name.
            matching = [each for each in names if each.lower() == default.lower()]
            if not matching:
                endpoint = spec.name if old is None else old.name
                at = ("defaults", "deployment_name")
                raise self.no_deployment(endpoint, default, names, at)
            default = matching[0]
        return {"default_deployment": default}

    def remove(
        self, connection: Connection, endpoint: BatchEndpoint, now: datetime
    ) -> BatchEndpoint:
        """Its jobs stay, and those that run go on."""
        store.remove_endpoint(connection, endpoint)
        return endpoint


BATCH = BatchEndpoints()
get = BATCH.get
