"""Keys of Azure ML's workspace schema that describe Azure's resources and networks.

Owns: which of them are satisfied by what torchyard is, and are kept to be given back; which are
refused, with the reason.
Leaves: name, location, description, display name and tags to actions.py.
Always: a key that asks for what torchyard does not do is refused by name, never dropped.

Source: `WorkspaceSchema`, `HubSchema` and `ProjectSchema` of azure-ai-ml 1.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import At, By, Key, Refused, Text, Truth, Word
from torchyard.base.documents.models import Document, declared, keys
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import text

_LIMIT_JOBS = "to limit what jobs connect to, use `yard workspace update --network workspace`"
_NO_ACCESS = (
    "`public_network_access: disabled` can't be honoured: who reaches the server is not set by "
    "workspace",
    f"let the server listen on a private address, or behind a firewall; {_LIMIT_JOBS}",
)
_TOLD = Key("the server tells its own", "satisfied")
_KEPT = (
    "hbi_workspace", "enable_data_isolation", "allow_roleassignment_on_rg",
    "provision_network_now", "image_build_compute", "system_datastores_auth_mode",
    "public_network_access",
)  # fmt: skip


@dataclass(frozen=True)
class _Refused(Refused):
    """`note` is the reason."""

    hint: str = "leave it out"

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> None:
        if body[key]:
            raise InvalidSpec(
                f"`{key}` can't be honoured: {self.note}",
                self.hint,
                code="not_served",
                at=(*at, key),
            )


_NO_HUBS = _Refused("torchyard has no hubs")


def _identity(value: Any, at: At) -> None:
    kind = value.get("type") if isinstance(value, Mapping) else value
    if kind in (None, "") or str(kind).lower().replace("_", "") in ("systemassigned", "none"):
        return
    raise InvalidSpec(
        f"`identity` of the type `{str(kind)[:50]}` can't be honoured: jobs run as the machine's "
        "accounts, not with an identity of Azure",
        "leave it out, or use `type: system_assigned`",
        code="not_served",
        at=at,
    )


def _network(value: Any, at: At) -> None:
    mode = value.get("isolation_mode") if isinstance(value, Mapping) else value
    if mode in (None, "") or str(mode).lower() == "disabled":
        return
    raise InvalidSpec(
        f"`managed_network` with `isolation_mode: {str(mode)[:50]}` can't be honoured: torchyard "
        "makes no networks in Azure",
        f"leave it out; {_LIMIT_JOBS}",
        code="not_served",
        at=at,
    )


def _kind(value: Any, at: At) -> None:
    kind = text({"kind": value}, "kind", at[:-1])
    if kind.lower() not in ("", "default"):
        raise InvalidSpec(
            f"`kind: {kind[:50]}` can't be honoured: torchyard has workspaces, no hubs, projects "
            "or feature stores",
            "leave it out",
            code="not_served",
            at=at,
        )


class AzureKeys(Document):
    hbi_workspace: bool | None = declared(
        None, "nothing is sent to anybody, whatever it is about", Truth(), support="satisfied"
    )
    enable_data_isolation: bool | None = declared(
        None, "a workspace's data is its own", Truth(), support="satisfied"
    )
    allow_roleassignment_on_rg: bool | None = declared(None, check=Truth(), support="satisfied")
    provision_network_now: bool | None = declared(None, check=Truth(), support="satisfied")
    image_build_compute: str = declared(
        "", "the server builds environments", Text(256), support="satisfied"
    )
    system_datastores_auth_mode: str = declared("", check=Text(256), support="satisfied")
    public_network_access: str = declared(
        "",
        "`enabled`; the server's address decides",
        Word("enabled", refused={"disabled": _NO_ACCESS}),
        support="satisfied",
    )
    identity: None = declared(None, "`system_assigned`", By(_identity), support="satisfied")
    managed_network: None = declared(
        None, "`{isolation_mode: disabled}`", By(_network), support="satisfied"
    )
    kind: None = declared(None, "`default`", By(_kind), support="satisfied")
    id: str = declared("", _TOLD, Text())
    discovery_url: str = declared("", _TOLD, Text())
    mlflow_tracking_uri: str = declared("", _TOLD, Text())
    storage_account: None = declared(
        None,
        check=_Refused(
            "files lie in the server's home, not in a storage account",
            "leave it out; `yard datastore create` connects the account's containers",
        ),
    )
    container_registry: None = declared(
        None, check=_Refused("environments are built and kept on the server, without a registry")
    )
    key_vault: None = declared(
        None,
        check=_Refused(
            "the server keeps secrets itself, without a vault",
            "leave it out; see docs/guides/security.md",
        ),
    )
    application_insights: None = declared(
        None,
        check=_Refused(
            "the server has metrics of its own, for Prometheus",
            "leave it out; see docs/guides/monitoring.md",
        ),
    )
    customer_managed_key: None = declared(
        None,
        check=_Refused(
            "torchyard does not encrypt its home by itself",
            "leave it out, and put the home on an encrypted disk",
        ),
    )
    network_acls: None = declared(
        None, check=_Refused("who reaches the server is not set by workspace", "use a firewall")
    )
    primary_user_assigned_identity: None = declared(
        None, check=_Refused("jobs run as the machine's accounts, not with an identity of Azure")
    )
    workspace_hub: None = declared(None, check=_NO_HUBS)
    hub_id: None = declared(None, check=_NO_HUBS)
    default_resource_group: None = declared(None, check=_NO_HUBS)
    serverless_compute: None = declared(
        None, check=_Refused("torchyard has no serverless compute", f"leave it out; {_LIMIT_JOBS}")
    )

    @property
    def kept(self) -> dict[str, Any]:
        """What is satisfied, to be given back."""
        values = {key: getattr(self, key) for key in _KEPT}
        return {key: value for key, value in values.items() if value not in (None, "")}


def notices(document: Mapping[str, Any]) -> list[str]:
    """What to say of keys that were taken and change nothing."""
    taken = [key for key, value in document.items() if value not in (None, "", {})]
    satisfied = [key for key, each in keys(AzureKeys).items() if each.support == "satisfied"]
    without_effect = [key for key in taken if key in _KEPT]
    ignored = [key for key in taken if key in satisfied and key not in _KEPT]
    return [
        *(
            [f"kept and shown, without an effect here: {_quote_keys(without_effect)}"]
            if without_effect
            else []
        ),
        *([f"ignored, since it has no meaning here: {_quote_keys(ignored)}"] if ignored else []),
    ]


def _quote_keys(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)
