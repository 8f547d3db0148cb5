"""Keys of Azure ML's workspace schema that describe Azure's resources and networks.

Owns: which of them are satisfied by what torchyard is, and are kept to be given back; which are
refused, with the reason.
Leaves: name, location, description, display name and tags to actions.py.
Always: a key that asks for what torchyard does not do is refused by name, never dropped.

Source: `WorkspaceSchema`, `HubSchema` and `ProjectSchema` of azure-ai-ml 1.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
_CHOICES = ("public_network_access", "identity", "managed_network", "kind")
# A workspace that was exported has them; the server tells its own.
_READ_ONLY = ("id", "discovery_url", "mlflow_tracking_uri")
_LIMIT_JOBS = "to limit what jobs connect to, use `yard workspace update --network workspace`"
_NO_HUBS = ("torchyard has no hubs", "leave it out")
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
    "workspace_hub": _NO_HUBS,
    "hub_id": _NO_HUBS,
    "default_resource_group": _NO_HUBS,
    "serverless_compute": (
        "torchyard has no serverless compute",
        f"leave it out; {_LIMIT_JOBS}",
    ),
}

KEYS = (*_TRUTHS, *_TEXTS, *_CHOICES, *_READ_ONLY, *_REFUSED)


def refuse_unknown(document: Mapping[str, Any], keys: Sequence[str]) -> None:
    """
    Args:
        keys: those that torchyard honours.

    Raises:
        InvalidSpec: a key is neither torchyard's nor Azure's, or asks for what torchyard does not
            do.
    """
    guesses = [key for key in (*keys, *KEYS) if key not in (*_READ_ONLY, *_REFUSED)]
    for key in document:
        if key not in (*keys, *KEYS):
            raise fields.unknown_key(str(key), guesses, otherwise="leave it out")
    _refuse_unsatisfied(document)


def read(document: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the document that are satisfied, to be kept and given back.

    Raises:
        InvalidSpec: a value is wrong, or asks for what torchyard does not do.
    """
    _refuse_unsatisfied(document)
    settings: dict[str, Any] = {}
    for key in _TRUTHS:
        if document.get(key) is not None:
            settings[key] = _truth(document, key)
    for key in _TEXTS:
        if fields.text(document, key):
            settings[key] = fields.bounded(document[key], _LONGEST, f"`{key}`", at=[key])
    for key in _READ_ONLY:
        fields.text(document, key)
    if fields.text(document, "public_network_access"):
        settings["public_network_access"] = "enabled"
    return settings


def notices(document: Mapping[str, Any]) -> list[str]:
    """What to say of keys that were taken and change nothing."""
    taken = [key for key, value in document.items() if value not in (None, "", {})]
    without_effect = [key for key in taken if key in (*_TRUTHS, *_TEXTS, "public_network_access")]
    ignored = [key for key in taken if key in ("identity", "managed_network", "kind", *_READ_ONLY)]
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


def _refuse_unsatisfied(document: Mapping[str, Any]) -> None:
    for key, (reason, hint) in _REFUSED.items():
        if document.get(key):
            raise InvalidSpec(f"`{key}` can't be honoured: {reason}", hint, at=[key])
    for check in (_check_access, _check_identity, _check_network, _check_kind):
        check(document)


def _truth(document: Mapping[str, Any], key: str) -> bool:
    value = document[key]
    if type(value) is not bool:
        raise InvalidSpec(
            f"`{key}` must be a boolean, not {fields.described(value)}",
            "use true or false",
            at=[key],
        )
    return value


def _check_access(document: Mapping[str, Any]) -> None:
    access = fields.text(document, "public_network_access")
    if access.lower() == "disabled":
        raise InvalidSpec(
            "`public_network_access: disabled` can't be honoured: who reaches the server is not "
            "set by workspace",
            f"let the server listen on a private address, or behind a firewall; {_LIMIT_JOBS}",
            at=["public_network_access"],
        )
    if access.lower() not in ("", "enabled"):
        raise InvalidSpec(
            f"`public_network_access` is `{access[:50]}`",
            "use enabled, or leave it out",
            at=["public_network_access"],
        )


def _check_identity(document: Mapping[str, Any]) -> None:
    identity = document.get("identity")
    kind = identity.get("type") if isinstance(identity, Mapping) else identity
    if kind in (None, "") or str(kind).lower().replace("_", "") in ("systemassigned", "none"):
        return
    raise InvalidSpec(
        f"`identity` of the type `{str(kind)[:50]}` can't be honoured: jobs run as the machine's "
        "accounts, not with an identity of Azure",
        "leave it out, or use `type: system_assigned`",
        at=["identity"],
    )


def _check_network(document: Mapping[str, Any]) -> None:
    network = document.get("managed_network")
    mode = network.get("isolation_mode") if isinstance(network, Mapping) else network
    if mode in (None, "") or str(mode).lower() == "disabled":
        return
    raise InvalidSpec(
        f"`managed_network` with `isolation_mode: {str(mode)[:50]}` can't be honoured: torchyard "
        "makes no networks in Azure",
        f"leave it out; {_LIMIT_JOBS}",
        at=["managed_network"],
    )


def _check_kind(document: Mapping[str, Any]) -> None:
    kind = fields.text(document, "kind")
    if kind.lower() not in ("", "default"):
        raise InvalidSpec(
            f"`kind: {kind[:50]}` can't be honoured: torchyard has workspaces, no hubs, projects "
            "or feature stores",
            "leave it out",
            at=["kind"],
        )
