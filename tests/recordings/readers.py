"""What readers of documents make of an input: the value, or each fault with its place.

Owns: which readers there are, one for each kind of document that people and programs hand in; an
outcome that can be compared as text.
Leaves: the inputs to inputs.py, comparing two versions to compare.py.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from pydantic import BaseModel

from torchyard.base.errors import TorchyardError
from torchyard.batch_endpoints.spec import deployment_spec as batch_deployments
from torchyard.batch_endpoints.spec import endpoint_spec as batch_endpoints
from torchyard.batch_endpoints.spec import invocation
from torchyard.components import documents as components
from torchyard.compute import documents as computes
from torchyard.compute import sizes
from torchyard.connections import documents as connections
from torchyard.data import assets as data
from torchyard.data import kinds as datastores
from torchyard.endpoints.spec import deployment_spec, endpoint_spec
from torchyard.environments import assets as environments
from torchyard.instances import documents as instances
from torchyard.jobs.spec import job_spec
from torchyard.models import documents as models
from torchyard.sweeps.spec import sweep_spec
from torchyard.workspaces import actions as workspaces

_NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
_ENGINES = ("local", "ray", "slurm")


def _compute(document: Any) -> object:
    return computes.read(document, "default", _NOW, sizes.all_sizes(), _ENGINES)


def _datastore(document: Any) -> object:
    return datastores.read_document(document, "default", _NOW)


def _workspace(document: Any) -> object:
    return workspaces.read_document(document, _NOW)


def _connection(document: Any) -> object:
    file = connections.read(document)
    return file.target, file.authType, file.secrets(), file.metadata


READERS: Mapping[str, Callable[[Any], object]] = {
    "job": job_spec.read,
    "sweep": sweep_spec.read,
    "endpoint": endpoint_spec.read,
    "deployment": deployment_spec.read,
    "batch endpoint": batch_endpoints.read,
    "batch deployment": batch_deployments.read,
    "invocation": invocation.read,
    "compute": _compute,
    "environment": environments.read_document,
    "data": data.read_document,
    "datastore": _datastore,
    "model": models.read,
    "component": components.read,
    "connection": _connection,
    "instance": instances.read,
    "workspace": _workspace,
}


def outcome(kind: str, document: Any) -> dict[str, Any]:
    """`{"value": …}`, `{"faults": [[code, at, message, hint], …]}` in the order of places, or
    `{"raised": …}` for what no user should see.
    """
    try:
        value = READERS[kind](copy.deepcopy(document))
    except TorchyardError as error:
        found = [
            [each.code, [str(step) for step in each.at], each.message, each.hint]
            for each in (error, *error.others)
        ]
        return {"faults": sorted(found)}
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"}
    return {"value": plain(value)}


# What a spec had in bytes, its model has in the file's own unit.
_UNITS = ("max_body_bytes", "max_collected_bytes", "max_body_mb", "max_collected_mb", "take_over")


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
    if isinstance(value, BaseModel):
        return plain(dict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items() if key not in _UNITS}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)
