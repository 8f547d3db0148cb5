"""The kinds of datastore: from a document to an fsspec URL and its options.

Owns: the keys of each kind, named as in Azure ML, and the options of fsspec that they set.
Leaves: opening the file system to remote.py.
Always: credentials are kept in the options alone; an unknown key is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from torchyard.base import fields
from torchyard.base.documents import expressions
from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.data.types import Datastore

_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,254}\Z", re.IGNORECASE)
_COMMON = ("name", "type", "description", "tags", "properties", "credentials", "$schema")
_AZURE_CREDENTIALS = (
    "account_key", "sas_token", "tenant_id", "client_id", "client_secret", "resource_url",
    "authority_url",
)  # fmt: skip
_DEFAULT_ENDPOINT = "core.windows.net"

Meant = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """`needs` are required keys, `takes` optional ones; `mean` gives the URL and the options."""

    needs: tuple[str, ...]
    takes: tuple[str, ...]
    credentials: tuple[str, ...]
    mean: Callable[[Mapping[str, Any], Mapping[str, str]], Meant]


def _azure_blob(document: Mapping[str, Any], credentials: Mapping[str, str]) -> Meant:
    container = document.get("container_name") or document.get("filesystem")
    account = str(document["account_name"])
    endpoint = str(document.get("endpoint") or _DEFAULT_ENDPOINT)
    options: dict[str, Any] = {"account_name": account}
    options.update(_azure_login(credentials))
    if "://" in endpoint:
        # An emulator or a private installation, where the account is part of the path.
        key = credentials.get("account_key", "")
        sas = credentials.get("sas_token", "").lstrip("?")
        secret = f"AccountKey={key}" if key else f"SharedAccessSignature={sas}"
        scheme = endpoint.partition("://")[0]
        options = {
            "account_name": account,
            "connection_string": f"DefaultEndpointsProtocol={scheme};AccountName={account};"
            f"{secret};BlobEndpoint={endpoint.rstrip('/')};",
        }
    elif endpoint != _DEFAULT_ENDPOINT:
        options["account_host"] = f"{account}.blob.{endpoint}"
    return f"abfs://{container}", options


def _azure_login(credentials: Mapping[str, str]) -> dict[str, Any]:
    keys = ("account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    options: dict[str, Any] = {key: credentials[key] for key in keys if credentials.get(key)}
    # Without credentials adlfs would use those of the machine; a public container needs none.
    return options or {"anon": True}


def _azure_file(document: Mapping[str, Any], credentials: Mapping[str, str]) -> Meant:
    account = str(document["account_name"])
    share = document.get("file_share_name") or document.get("container_name")
    endpoint = str(document.get("endpoint") or _DEFAULT_ENDPOINT)
    options = {"host": f"{account}.file.{endpoint}", "username": account}
    if credentials.get("account_key"):
        return f"smb:///{share}", {**options, "password": credentials["account_key"]}
    if not credentials.get("sas_token"):
        raise InvalidSpec(
            "an Azure file share is reached by SMB, which needs the account's key",
            "give `credentials: {account_key: …}`; or mount the share on the server and make "
            "a datastore of `type: local`",
            at=["credentials"],
        )
    return f"smb:///{share}", {**options, "sas_token": credentials["sas_token"]}


def is_kept_only(datastore: Datastore) -> bool:
    """Whether it is kept for Azure ML's own clients: SMB has no place for a SAS token."""
    return datastore.url.startswith("smb:") and "sas_token" in datastore.options


def _s3(document: Mapping[str, Any], credentials: Mapping[str, str]) -> Meant:
    options: dict[str, Any] = {}
    if document.get("endpoint"):
        options["endpoint_url"] = str(document["endpoint"])
    if document.get("region"):
        options["client_kwargs"] = {"region_name": str(document["region"])}
    names = {"access_key_id": "key", "secret_access_key": "secret", "session_token": "token"}
    for key, option in names.items():
        if credentials.get(key):
            options[option] = credentials[key]
    if document.get("anonymous"):
        options["anon"] = True
    return _bucket(document, "s3"), options


def _gs(document: Mapping[str, Any], credentials: Mapping[str, str]) -> Meant:
    options: dict[str, Any] = {}
    if document.get("endpoint"):
        options["endpoint_url"] = str(document["endpoint"])
    if credentials.get("service_account"):
        import json

        try:
            options["token"] = json.loads(credentials["service_account"])
        except ValueError as error:
            raise InvalidSpec(
                "`service_account` is not JSON", "paste the key file's content", at=["credentials"]
            ) from error
    if document.get("anonymous"):
        options["token"] = "anon"
    return _bucket(document, "gs"), options


def _sftp(document: Mapping[str, Any], credentials: Mapping[str, str]) -> Meant:
    options: dict[str, Any] = {"host": str(document["host"])}
    if document.get("port"):
        if not str(document["port"]).isdigit() or int(document["port"]) not in range(1, 2**16):
            raise InvalidSpec(
                f"`port` must be between 1 and 65535, not `{document['port']}`", at=["port"]
            )
        options["port"] = int(document["port"])
    for key, option in (("username", "username"), ("private_key_file", "key_filename")):
        if document.get(key):
            options[option] = str(document[key])
    if credentials.get("password"):
        options["password"] = credentials["password"]
    return "sftp:///" + str(document.get("path") or "/").strip("/"), options


def _local(document: Mapping[str, Any], credentials: Mapping[str, str]) -> Meant:
    folder = Path(str(document["path"]))
    if not folder.is_absolute():
        raise InvalidSpec(
            f"`{folder}` is not an absolute path", "write the path on the server's machine",
            at=["path"],
        )  # fmt: skip
    return f"file://{folder}", {}


def _bucket(document: Mapping[str, Any], protocol: str) -> str:
    url = str(document.get("url") or "")
    if url:
        if not url.startswith(f"{protocol}://"):
            raise InvalidSpec(
                f"`{url}` is not of protocol `{protocol}`", f"write `{protocol}://…`", at=["url"]
            )
        return url.rstrip("/")
    if not document.get("bucket"):
        raise InvalidSpec(
            "the datastore has no `bucket`", "name it, or give a whole `url`", at=["bucket"]
        )
    return f"{protocol}://{document['bucket']}/{document.get('path') or ''}".rstrip("/")


_AZURE = ("account_name", "endpoint", "protocol")
KINDS: dict[str, Kind] = {
    "azure_blob": Kind(
        ("account_name", "container_name"), _AZURE, _AZURE_CREDENTIALS, _azure_blob
    ),
    "azure_data_lake_gen2": Kind(
        ("account_name", "filesystem"), _AZURE, _AZURE_CREDENTIALS, _azure_blob
    ),
    "azure_file": Kind(
        ("account_name",), (*_AZURE, "file_share_name", "container_name"), _AZURE_CREDENTIALS,
        _azure_file,
    ),
    "s3": Kind(
        (), ("bucket", "path", "url", "endpoint", "region", "anonymous"),
        ("access_key_id", "secret_access_key", "session_token"), _s3,
    ),
    "gs": Kind(
        (), ("bucket", "path", "url", "endpoint", "anonymous"), ("service_account",), _gs
    ),
    "sftp": Kind(
        ("host",), ("port", "username", "path", "private_key_file"), ("password",), _sftp
    ),
    "local": Kind(("path",), ("account",), (), _local),
}  # fmt: skip
_ALIASES = {"adls": "azure_data_lake_gen2", "adls_gen2": "azure_data_lake_gen2", "gcs": "gs"}
_RETIRED = {
    "azure_data_lake_gen1": "Azure Data Lake Storage Gen1 was retired in February 2024",
    "one_lake": "OneLake needs a Fabric workspace",
}


def read_document(document: Mapping[str, Any], workspace: str, now: datetime) -> Datastore:
    """
    Raises:
        InvalidSpec: a key is unknown or missing, or a value wrong.
    """
    name = document.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidSpec(
            f"`{name}` is not a valid name for a datastore"
            if name
            else "the datastore has no `name`",
            "use letters, digits, `_` and `-`, beginning with a letter or digit",
            at=["name"],
        )
    kind_name = _kind(document)
    kind = KINDS[kind_name]
    known_keys = (*_COMMON, *kind.needs, *kind.takes)
    for key, value in document.items():
        if key not in known_keys:
            raise fields.unknown_key(str(key), known_keys)
        if key in (*kind.needs, *kind.takes) and not isinstance(value, (str, int, bool)):
            raise InvalidSpec(f"`{key}` must be text", f"not `{value}`", at=[str(key)])
    for key in kind.needs:
        if not document.get(key):
            raise InvalidSpec(
                f"a datastore of type `{kind_name}` needs `{key}`",
                f"write it into the file, or use `--set {key}=…`",
                at=[key],
            )
    # A password may hold any characters.
    expressions.refuse({key: value for key, value in document.items() if key != "credentials"})
    credentials = _credentials(document, kind)
    url, options = kind.mean(document, credentials)
    public = {key: document[key] for key in (*kind.needs, *kind.takes) if key in document}
    public["credentials"] = dict.fromkeys(credentials, "********")
    return Datastore(
        workspace=workspace,
        name=name,
        kind=kind_name,
        url=url,
        created_at=now,
        options=options,
        document=public,
        description=str(document.get("description") or ""),
        tags=fields.texts(document, "tags"),
    )


def _kind(document: Mapping[str, Any]) -> str:
    written = document.get("type") or _by_url(document)
    if not isinstance(written, str) or not written:
        raise InvalidSpec("the datastore has no `type`", f"one of: {', '.join(KINDS)}", at=["type"])
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", written).lower().replace("-", "_")
    plain = _ALIASES.get(plain, plain)
    if plain in _RETIRED:
        raise InvalidSpec(
            f"datastores of type `{written}` are not supported: {_RETIRED[plain]}",
            f"use one of: {', '.join(KINDS)}",
            at=["type"],
        )
    if plain not in KINDS:
        raise InvalidSpec(
            f"`{written}` is not a datastore type",
            did_you_mean(plain, KINDS),
            at=["type"],
        )
    return plain


def _by_url(document: Mapping[str, Any]) -> str:
    """The kind of a URL whose protocol is that of a kind that takes URLs; empty for others."""
    protocol = str(document.get("url") or "").partition("://")[0]
    return protocol if protocol in KINDS and "url" in KINDS[protocol].takes else ""


def _credentials(document: Mapping[str, Any], kind: Kind) -> dict[str, str]:
    credentials = document.get("credentials") or {}
    if not isinstance(credentials, Mapping):
        keys = ", ".join(kind.credentials) or "none"
        raise InvalidSpec(
            "`credentials` must be a mapping", f"its keys: {keys}", at=["credentials"]
        )
    for key in credentials:
        if key not in kind.credentials:
            raise fields.unknown_key(
                str(key), kind.credentials, ["credentials"], inside="credentials"
            )
    return {str(key): str(value) for key, value in credentials.items() if value}
