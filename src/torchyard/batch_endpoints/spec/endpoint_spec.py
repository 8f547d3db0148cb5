"""The batch endpoint's file: from a mapping to an `EndpointSpec`.

Owns: what stands in an endpoint's file.
Leaves: which deployments exist to actions; deployments to deployment_spec.py.
Always: an `EndpointSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents.checks import At, By, Text, Word
from torchyard.base.documents.models import Document, declared
from torchyard.base.errors import InvalidSpec
from torchyard.endpoints.spec.endpoint_spec import AUTH_MODES, EndpointFile, no_identity

_AUTH_MODE = Word(*AUTH_MODES)


@dataclass(frozen=True)
class EndpointSpec:
    """`default_deployment` is None where the file says nothing of it, empty for none."""

    name: str
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    default_deployment: str | None = None


def _auth_mode(value: Any, at: At) -> str:
    if _AUTH_MODE.read({"auth_mode": value}, "auth_mode", at[:-1], "aad_token") != "aad_token":
        raise InvalidSpec(
            f"`auth_mode: {value}` is not served by batch endpoints",
            "write `aad_token`, or leave it out: callers send a token of this server",
            code="not_served",
            at=at,
        )
    return "aad_token"


class Defaults(Document):
    deployment_name: str = declared("", "a deployment of the endpoint", Text())


class BatchEndpointFile(EndpointFile):
    defaults: Defaults | None = declared(None, "`{deployment_name: …}`: what `invoke` takes")
    auth_mode: str = declared(
        "aad_token", "`aad_token`: a token of this server", By(_auth_mode), support="satisfied"
    )
    identity: None = declared(
        None,
        "`{type: system_assigned}`; a job has its owner's rights",
        no_identity("leave it out: a job has the rights of the person who invokes the endpoint"),
        support="satisfied",
    )
    kind: str = declared("batch", "`Batch`", Word("batch"), support="satisfied")
    type: str = declared("batch", "`batch`", Word("batch"), support="satisfied")


def read(document: Any) -> EndpointSpec:
    """Check an endpoint file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    file = BatchEndpointFile.read(document)
    return EndpointSpec(
        name=file.name,
        description=file.description,
        tags=file.tags,
        properties=file.properties,
        default_deployment=None if file.defaults is None else file.defaults.deployment_name,
    )
