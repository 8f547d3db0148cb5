"""The batch endpoint's file: from a mapping to an `EndpointSpec`.

Owns: what stands in an endpoint's file.
Leaves: which deployments exist to actions; deployments to deployment_spec.py.
Always: an `EndpointSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import mapping, text, texts
from torchyard.batch_endpoints.spec import keys
from torchyard.endpoints.spec.endpoint_spec import check_identity, name
from torchyard.endpoints.spec.keys import check
from torchyard.endpoints.spec.settings import word


@dataclass(frozen=True)
class EndpointSpec:
    """`default_deployment` is None where the file says nothing of it, empty for none."""

    name: str
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    default_deployment: str | None = None


@faults.all_at_once
def read(document: Any) -> EndpointSpec:
    """Check an endpoint file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    body = check(mapping(document, "the endpoint"), keys.ENDPOINT, (), "the endpoint")
    expressions.refuse(body)
    word(body, "kind", (), ("batch",), "batch")
    word(body, "type", (), ("batch",), "batch")
    if word(body, "auth_mode", (), ("aad_token", "key", "aml_token"), "aad_token") != "aad_token":
        raise InvalidSpec(
            f"`auth_mode: {body['auth_mode']}` is not served by batch endpoints",
            "write `aad_token`, or leave it out: callers send a token of this server",
            code="not_served",
            at=("auth_mode",),
        )
    check_identity(
        body.get("identity"),
        "leave it out: a job has the rights of the person who invokes the endpoint",
    )
    if word(body, "public_network_access", (), ("enabled", "disabled"), "") == "disabled":
        raise InvalidSpec(
            "`public_network_access: disabled` is not served",
            "leave it out: who reaches the server's address reaches its endpoints",
            code="not_served",
            at=("public_network_access",),
        )
    return EndpointSpec(
        name=name(body, "name", "the endpoint"),
        description=text(body, "description"),
        tags=texts(body, "tags"),
        properties=texts(body, "properties"),
        default_deployment=_default(body),
    )


def _default(body: Mapping[str, Any]) -> str | None:
    at = ("defaults",)
    if body.get("defaults") is None:
        return None
    defaults = check(body["defaults"], keys.DEFAULTS, at, "`defaults`")
    return text(defaults, "deployment_name", at)
