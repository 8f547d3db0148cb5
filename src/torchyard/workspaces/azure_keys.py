"""Keys of Azure ML's workspace schema that describe Azure's resources and networks.

Owns: which of them are satisfied by what torchyard is, and are kept to be given back; which are
refused, with the reason.
Leaves: name, location, description, display name and tags to actions.py.
Always: a key that asks for what torchyard does not do is refused by name, never dropped.

Source: `WorkspaceSchema` of azure-ai-ml 1.35.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base import fields
from torchyard.base.errors import InvalidSpec

_LONGEST = 256
_TRUTHS = (
    # Nothing is sent to anybody, whatever the data is about.
    "hbi_workspace",
    # A workspace's data is its own.
    "enable_data_isolation",
    "allow_roleassignment_on_rg",
    "provision_network_now",
)
_TEXTS = (
    # The server builds environments.
    "image_build_compute",
    "system_datastores_auth_mode",
)
_CHOICES = ("public_network_access", "identity", "managed_network")
# A workspace that was exported has them; the server tells its own.
_READ_ONLY = ("id", "discovery_url", "mlflow_tracking_uri")
_LIMIT_JOBS = "to limit what jobs connect to, use `yard workspace update --network workspace`"
_REFUSED = {
    "storage_account": (
        "files lie in the server's home, not in a storage account",
        "leave it out; `yard datastore create` connects the account's containers",
    ),
    "container_registry": (
        "environments are built and kept on the server, without a registry",
        "leave it out",
    ),
    "key_vault": (
        "the server keeps secrets itself, without a vault",
        "leave it out; see docs/guides/security.md",
    ),
    "application_insights": (
        "the server has metrics of its own, for Prometheus",
        "leave it out; see docs/guides/monitoring.md",
    ),
    "customer_managed_key": (
        "torchyard does not encrypt its home by itself",
        "leave it out, and put the home on an encrypted disk",
    ),
    "network_acls": ("who reaches the server is not set by workspace", "use a firewall"),
    "primary_user_assigned_identity": (
        "jobs run as the machine's accounts, not with an identity of Azure",
        "leave it out",
    ),
    "workspace_hub": ("torchyard has no hubs", "leave it out"),
    "serverless_compute": (
        "torchyard has no serverless compute",
        f"leave it out; {_LIMIT_JOBS}",
    ),
}

KEYS = (*_TRUTHS, *_TEXTS, *_CHOICES, *_READ_ONLY, *_REFUSED)


def read(document: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the document that are satisfied, to be kept and given back.

    Raises:
        InvalidSpec: a value is wrong, or asks for what torchyard does not do.
    """
    for key, (reason, hint) in _REFUSED.items():
        if document.get(key):
            raise InvalidSpec(f"`{key}` can't be honoured: {reason}", hint, at=[key])
    kept: dict[str, Any] = {}
    for key in _TRUTHS:
        if document.get(key) is not None:
            kept[key] = _truth(document, key)
    for key in _TEXTS:
        if fields.text(document, key):
            kept[key] = fields.bounded(document[key], _LONGEST, f"`{key}`", at=[key])
    for key in _READ_ONLY:
        fields.text(document, key)
    access = fields.text(document, "public_network_access")
    if access:
        _check_access(access)
        kept["public_network_access"] = "enabled"
    _check_identity(document.get("identity"))
    _check_network(document.get("managed_network"))
    return kept


def _truth(document: Mapping[str, Any], key: str) -> bool:
    value = document[key]
    if type(value) is not bool:
        raise InvalidSpec(
            f"`{key}` must be a boolean, not {fields.described(value)}",
            "use true or false",
            at=[key],
        )
    return value


def _check_access(access: str) -> None:
    if access.lower() == "disabled":
        raise InvalidSpec(
            "`public_network_access: disabled` can't be honoured: who reaches the server is not "
            "set by workspace",
            f"let the server listen on a private address, or behind a firewall; {_LIMIT_JOBS}",
            at=["public_network_access"],
        )
    if access.lower() != "enabled":
        raise InvalidSpec(
            f"`public_network_access` is `{access[:50]}`",
            "use enabled, or leave it out",
            at=["public_network_access"],
        )


def _check_identity(identity: Any) -> None:
    kind = identity.get("type") if isinstance(identity, Mapping) else identity
    if kind in (None, "") or str(kind).lower().replace("_", "") in ("systemassigned", "none"):
        return
    raise InvalidSpec(
        f"`identity` of the type `{str(kind)[:50]}` can't be honoured: jobs run as the machine's "
        "accounts, not with an identity of Azure",
        "leave it out, or use `type: system_assigned`",
        at=["identity"],
    )


def _check_network(network: Any) -> None:
    mode = network.get("isolation_mode") if isinstance(network, Mapping) else network
    if mode in (None, "") or str(mode).lower() == "disabled":
        return
    raise InvalidSpec(
        f"`managed_network` with `isolation_mode: {str(mode)[:50]}` can't be honoured: torchyard "
        "makes no networks in Azure",
        f"leave it out; {_LIMIT_JOBS}",
        at=["managed_network"],
    )
