"""The endpoint's file: from a mapping to an `EndpointSpec`.

Owns: what stands in an endpoint's file; how traffic is written.
Leaves: which deployments exist to actions; deployments to deployment_spec.py.
Always: an `EndpointSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By, Refused, Text, Texts, Whole, Word
from torchyard.base.documents.models import File, declared, refused, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described

AUTH_MODES = ("key", "aml_token", "aad_token")
READ_ONLY = Refused("only the server writes it: remove it")
NETWORK = {
    "disabled": (
        "`public_network_access: disabled` is not served",
        "leave it out: who reaches the server's address reaches its endpoints",
    )
}
_NAME = re.compile(r"[a-zA-Z](?:[a-zA-Z0-9]|-(?!-)){1,30}[a-zA-Z0-9]\Z", re.ASCII)
_PERCENT = Whole(0, 100)


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


def no_identity(hint: str) -> By:
    """Of an endpoint, which has none of its own; `hint` says whose it has."""

    def read(value: Any, at: At) -> None:
        kind = value.get("type") if isinstance(value, Mapping) else value
        plain = kind.lower().replace("_", "") if isinstance(kind, str) else ""
        if plain not in ("systemassigned", "none"):
            raise InvalidSpec(
                f"`identity: {{type: {str(kind)[:40]}}}` is not served",
                hint,
                code="not_served",
                at=at,
            )

    return By(read)


def check_name(value: str, key: str, subject: str) -> None:
    """
    Raises:
        InvalidSpec: it is missing, or not within the grammar.
    """
    if not _NAME.match(value):
        raise InvalidSpec(
            f"`{value[:50]}` is not a valid `{key}`" if value else f"{subject} has no `{key}`",
            "use 3 to 32 letters, digits and single dashes, beginning with a letter and not "
            "ending with a dash",
            at=(key,) if value else (),
        )


def _percent(value: Any, at: At) -> dict[str, int]:
    key = str(at[-1])
    if not isinstance(value, Mapping):
        raise InvalidSpec(
            f"`{key}` must be a mapping of deployments to percentages, not {described(value)}",
            f"for example `{key}: {{blue: 90, green: 10}}`",
            at=at,
        )
    percent: dict[str, int] = {}
    for deployment, written in value.items():
        where = str(deployment)
        if where.lower() in {name.lower() for name in percent}:
            raise InvalidSpec(f"`{where}` is in `{key}` twice", "name it once", at=(*at, where))
        is_digits = isinstance(written, str) and written.isdigit()
        share = int(written[:9]) if is_digits else 0 if written is None else written
        percent[where] = _PERCENT.read({where: share}, where, at, 0)
    return percent


class EndpointFile(File):
    """The file of either kind of endpoint, as far as they have the same keys."""

    subject: ClassVar[str] = "the endpoint"

    name: str = declared(
        "", "3 to 32 letters, digits and single dashes, beginning with a letter", Text()
    )
    description: str = declared("", check=Text())
    tags: dict[str, str] = declared({}, "texts and numbers", Texts())
    properties: dict[str, str] = declared({}, "texts and numbers", Texts())
    public_network_access: str = declared(
        "",
        "`enabled`; the server's address decides",
        Word("enabled", refused=NETWORK),
        support="satisfied",
    )
    location: Any = declared(None, "the server's machine", support="satisfied")
    id: None = refused(READ_ONLY)
    scoring_uri: None = refused(READ_ONLY)
    openapi_uri: None = refused(READ_ONLY)
    provisioning_state: None = refused(READ_ONLY)

    @rule("name")
    def _name(self) -> None:
        check_name(self.name, "name", self.subject)


class OnlineEndpointFile(EndpointFile):
    auth_mode: str = declared(
        "key", "`key` (the default), `aml_token`, `aad_token`", Word(*AUTH_MODES)
    )
    traffic: dict[str, int] | None = declared(
        None, "percent by deployment, 0 or 100 in all; by `update` only", By(_percent)
    )
    mirror_traffic: dict[str, int] | None = declared(
        None, "percent of requests that one deployment gets a copy of", By(_percent)
    )
    identity: None = declared(
        None,
        "`{type: system_assigned}`; the owner's rights are used",
        no_identity("leave it out: instances run as the deployment's owner"),
        support="satisfied",
    )
    kind: str = declared("managed", "`Managed`", Word("managed"), support="satisfied")
    type: str = declared("online", "`online`", Word("online"), support="satisfied")
    compute: None = refused("leave it out; a deployment names a cluster: `torchyard: {cluster}`")

    @rule("traffic")
    def _total(self) -> None:
        total = sum((self.traffic or {}).values())
        if total not in (0, 100):
            raise InvalidSpec(
                f"`traffic` adds up to {total}",
                "the percentages of all deployments must add up to 100, or to 0 for none",
                at=("traffic",),
            )

    @rule("mirror_traffic")
    def _mirror(self) -> None:
        shares = [share for share in (self.mirror_traffic or {}).values() if share]
        if len(shares) > 1 or sum(shares) > 50:
            raise InvalidSpec(
                "`mirror_traffic` names several deployments, or more than 50 percent",
                "give one deployment a share of up to 50",
                at=("mirror_traffic",),
            )


def read(document: Any) -> EndpointSpec:
    """Check an endpoint file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    file = OnlineEndpointFile.read(document)
    return EndpointSpec(
        name=file.name,
        auth_mode=file.auth_mode,
        description=file.description,
        tags=file.tags,
        properties=file.properties,
        traffic=file.traffic,
        mirror_traffic=file.mirror_traffic,
    )
