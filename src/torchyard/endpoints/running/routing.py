"""The router's table, from rows.

Owns: what the router is told of endpoints, deployments and instances; where it keeps what it
collects.
Leaves: the table's form to router/table.py.
Always: only instances that are ready, or that end in peace, are in it, and only those of the
revision that answers get new requests; keys are in it as hashes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from torchyard.endpoints.records.types import (
    AuthMode,
    Deployment,
    Endpoint,
    EndpointKeys,
    Instance,
    InstanceState,
)
from torchyard.endpoints.router.table import (
    Auth,
    Batching,
    Collect,
    DeploymentRow,
    EndpointRow,
    InstanceRow,
)
from torchyard.endpoints.spec.data_collection import REQUEST, RESPONSE
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec

# The variable by which Azure's inference server is told whose pages may call it.
# https://learn.microsoft.com/azure/machine-learning/how-to-inference-server-http
_CORS = "AML_CORS_ORIGINS"
_IN_TABLE = (InstanceState.READY, InstanceState.DRAINING)


def endpoint_row(
    endpoint: Endpoint,
    keys: EndpointKeys,
    deployments: Mapping[str, DeploymentRow],
    may_run: bool = True,
) -> EndpointRow:
    """
    Args:
        may_run: the endpoint's owner may run something; else it lets nobody in.
    """
    traffic = dict(endpoint.traffic), dict(endpoint.mirror_traffic)
    if not may_run:
        return EndpointRow(Auth(AuthMode.KEY.value, ()), *traffic, deployments)
    hashes = tuple(hashlib.sha256(key.encode()).digest() for key in (keys.primary, keys.secondary))
    auth = Auth(endpoint.auth_mode.value, hashes, _secret(keys.token_secret))
    return EndpointRow(auth, *traffic, deployments)


def deployment_row(
    deployment: Deployment,
    spec: DeploymentSpec,
    instances: Iterable[Instance],
    collected: Path,
    by_script: bool = False,
) -> DeploymentRow:
    """
    Args:
        spec: of the revision that answers.
        collected: the folder of its collections.
        by_script: the scoring script collects what is not `request` or `response`.
    """
    answers = deployment.served_revision or deployment.revision
    rows = [
        InstanceRow(
            each.id,
            each.host,
            each.state is InstanceState.DRAINING or each.revision != answers,
        )
        for each in instances
        if each.state in _IN_TABLE and each.host
    ]
    requests, limits, collector = spec.request_settings, spec.own_settings, spec.data_collector
    batching = collect = None
    if limits.batching is not None:
        batching = Batching(limits.batching.max_size, limits.batching.max_wait_ms)
    if collector is not None:
        collect = Collect(
            str(collected),
            {
                each.name: each.sampling_rate
                for each in collector.collections
                if not by_script or each.name in (REQUEST, RESPONSE)
            },
            collector.rolling_rate,
            limits.max_collected_bytes,
        )
    scale = spec.scale_settings
    return DeploymentRow(
        tuple(rows),
        requests.request_timeout_ms,
        requests.max_concurrent_requests_per_instance,
        limits.max_queue,
        requests.max_queue_wait_ms,
        limits.max_body_bytes,
        scale.is_automatic and scale.min_instances == 0,
        batching,
        collect,
        has_cors=bool(spec.environment_variables.get(_CORS)),
    )


def _secret(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()
