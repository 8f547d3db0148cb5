"""The endpoint's file: from a mapping to an `EndpointSpec`.

Owns: what stands in an endpoint's file; how traffic is written.
Leaves: which deployments exist to actions; deployments to deployment_spec.py.
Always: an `EndpointSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, mapping, text, texts
from torchyard.endpoints.spec import keys, settings

AUTH_MODES = ("key", "aml_token", "aad_token")
_NAME = re.compile(r"[a-zA-Z](?:[a-zA-Z0-9]|-(?!-)){1,30}[a-zA-Z0-9]\Z", re.ASCII)


@dataclass(frozen=True)
class EndpointSpec:
    """`traffic` and `mirror_traffic` are None where the file says nothing of them."""

    name: str
    auth_mode: str = "key"
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    traffic: Mapping[str, int] | None = None
    mirror_traffic: Mapping[str, int] | None = None


@faults.all_at_once
def read(document: Any) -> EndpointSpec:
    """Check an endpoint file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    body = keys.check(mapping(document, "the endpoint"), keys.ENDPOINT, (), "the endpoint")
    expressions.refuse(body)
    settings.word(body, "kind", (), ("managed",), "managed")
    settings.word(body, "type", (), ("online",), "online")
    check_identity(body.get("identity"), "leave it out: instances run as the deployment's owner")
    if settings.word(body, "public_network_access", (), ("enabled", "disabled"), "") == "disabled":
        raise InvalidSpec(
            "`public_network_access: disabled` is not served",
            "leave it out: who reaches the server's address reaches its endpoints",
            code="not_served",
            at=("public_network_access",),
        )
    return EndpointSpec(
        name=name(body, "name", "the endpoint"),
        auth_mode=settings.word(body, "auth_mode", (), AUTH_MODES, "key"),
        description=text(body, "description"),
        tags=texts(body, "tags"),
        properties=texts(body, "properties"),
        traffic=_traffic(body),
        mirror_traffic=_mirror(body),
    )


def name(body: Mapping[str, Any], key: str, subject: str) -> str:
    """
    Raises:
        InvalidSpec: it is missing, or not within the grammar.
    """
    value = text(body, key)
    if not _NAME.match(value):
        raise InvalidSpec(
            f"`{value[:50]}` is not a valid `{key}`" if value else f"{subject} has no `{key}`",
            "use 3 to 32 letters, digits and single dashes, beginning with a letter and not "
            "ending with a dash",
            at=(key,) if value else (),
        )
    return value


def _traffic(body: Mapping[str, Any]) -> Mapping[str, int] | None:
    if body.get("traffic") is None:
        return None
    percent = _percent(body, "traffic")
    total = sum(percent.values())
    if total not in (0, 100):
        raise InvalidSpec(
            f"`traffic` adds up to {total}",
            "the percentages of all deployments must add up to 100, or to 0 for none",
            at=("traffic",),
        )
    return percent


def _mirror(body: Mapping[str, Any]) -> Mapping[str, int] | None:
    if body.get("mirror_traffic") is None:
        return None
    percent = _percent(body, "mirror_traffic")
    if len([share for share in percent.values() if share]) > 1 or sum(percent.values()) > 50:
        raise InvalidSpec(
            "`mirror_traffic` names several deployments, or more than 50 percent",
            "give one deployment a share of up to 50",
            at=("mirror_traffic",),
        )
    return percent


def _percent(body: Mapping[str, Any], key: str) -> dict[str, int]:
    written = body[key]
    if not isinstance(written, Mapping):
        raise InvalidSpec(
            f"`{key}` must be a mapping of deployments to percentages, not {described(written)}",
            f"for example `{key}: {{blue: 90, green: 10}}`",
            at=(key,),
        )
    percent: dict[str, int] = {}
    for deployment in written:
        value = written[deployment]
        if isinstance(value, str) and value.isdigit():
            value = int(value[:9])
        where = str(deployment)
        if where.lower() in {name.lower() for name in percent}:
            raise InvalidSpec(f"`{where}` is in `{key}` twice", "name it once", at=(key, where))
        percent[where] = settings.bounded_integer({where: value}, where, (key,), 0, 0, 100)
    return percent


def check_identity(value: Any, hint: str) -> None:
    """
    Raises:
        InvalidSpec: an identity of its own; `hint` says whose an endpoint has.
    """
    if value is None:
        return
    kind = value.get("type") if isinstance(value, Mapping) else value
    if not isinstance(kind, str) or kind.lower().replace("_", "") not in ("systemassigned", "none"):
        raise InvalidSpec(
            f"`identity: {{type: {str(kind)[:40]}}}` is not served",
            hint,
            code="not_served",
            at=("identity",),
        )
