"""The kinds of datastore: from a document to an fsspec URL and its options.

Owns: the keys of each kind, named as in Azure ML, and the options of fsspec that they set.
Leaves: opening the file system to remote.py.
Always: credentials are kept in the options alone; an unknown key is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By, Texts
from torchyard.base.documents.models import Document, File, declared, keys, rule
from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.data.documents import as_text
from torchyard.data.types import Datastore

_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,254}\Z", re.IGNORECASE)
_DEFAULT_ENDPOINT = "core.windows.net"

Meant = tuple[str, dict[str, Any]]
"""The URL and the options."""


def _plain(value: Any, at: At) -> Any:
    if not isinstance(value, str | int):
        raise InvalidSpec(f"`{at[-1]}` must be text", f"not `{value}`", at=at)
    return value


def _port(value: Any, at: At) -> int:
    if not _plain(value, at):
        return 0
    if not str(value).isdigit() or int(value) not in range(1, 2**16):
        raise InvalidSpec(f"`port` must be between 1 and 65535, not `{value}`", at=at)
    return int(value)


def _folder(value: Any, at: At) -> str:
    path = Path(str(_plain(value, at)))
    if value and not path.is_absolute():
        raise InvalidSpec(
            f"`{path}` is not an absolute path", "write the path on the server's machine", at=at
        )
    return str(path) if value else ""


def _key_file(value: Any, at: At) -> str:
    try:
        json.loads(str(value or "{}"))
    except ValueError as error:
        raise InvalidSpec(
            "`service_account` is not JSON", "paste the key file's content", at=at
        ) from error
    return as_text(value, at)


_PLAIN, _SECRET = By(_plain), By(as_text)


def _credentials(model: type[Document]) -> By:
    """Those that have a value. No error repeats one."""

    def read(value: Any, at: At) -> dict[str, str]:
        if value and not isinstance(value, Mapping):
            known = ", ".join(keys(model)) or "none"
            raise InvalidSpec("`credentials` must be a mapping", f"its keys: {known}", at=at)
        return {key: secret for key, secret in model.read(value or {}, at) if secret}

    return By(read, of=model)


class AzureCredentials(Document):
    account_key: str = declared("", check=_SECRET)
    sas_token: str = declared("", check=_SECRET)
    tenant_id: str = declared("", "of a service principal", _SECRET)
    client_id: str = declared("", "of a service principal", _SECRET)
    client_secret: str = declared("", "of a service principal", _SECRET)
    resource_url: str = declared("", "Azure's own is used", _SECRET, support="satisfied")
    authority_url: str = declared("", "Azure's own is used", _SECRET, support="satisfied")


class S3Credentials(Document):
    access_key_id: str = declared("", check=_SECRET)
    secret_access_key: str = declared("", check=_SECRET)
    session_token: str = declared("", check=_SECRET)


class GoogleCredentials(Document):
    service_account: str = declared("", "the key file's content, JSON", By(_key_file))


class SftpCredentials(Document):
    password: str = declared("", "of `username`", _SECRET)


class DatastoreFile(File):
    """What every kind has."""

    subject: ClassVar[str] = "the datastore"
    literal: ClassVar[tuple[str, ...]] = ("credentials",)
    kind: ClassVar[str]

    name: Any = declared(None, "letters, digits, `_` and `-`")
    type: Any = declared(None, "the kind; a `url` says it, too")
    description: str = declared("", check=By(as_text))
    tags: dict[str, str] = declared({}, "texts and numbers", Texts())
    properties: Any = declared(None, "not kept", support="satisfied")
    credentials: dict[str, str] = declared({}, "shown to nobody, see below", _credentials(Document))

    @rule("name")
    def _name(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise InvalidSpec(
                f"`{self.name}` is not a valid name for a datastore"
                if self.name
                else "the datastore has no `name`",
                "use letters, digits, `_` and `-`, beginning with a letter or digit",
                at=["name"],
            )

    @property
    def meant(self) -> Meant:
        raise NotImplementedError

    def _need(self, key: str) -> None:
        if not getattr(self, key):
            raise InvalidSpec(
                f"a datastore of type `{self.kind}` needs `{key}`",
                f"write it into the file, or use `--set {key}=…`",
                at=[key],
            )


class StorageAccountFile(DatastoreFile):
    """What is in an Azure storage account."""

    account_name: Any = declared(None, "the storage account", _PLAIN)
    endpoint: Any = declared(None, "default `core.windows.net`; or an emulator's URL", _PLAIN)
    protocol: Any = declared(None, "it is always encrypted", _PLAIN, support="satisfied")
    credentials: dict[str, str] = declared(
        {}, "`{account_key}`, `{sas_token}` or a service principal", _credentials(AzureCredentials)
    )

    @rule("account_name")
    def _account(self) -> None:
        self._need("account_name")

    @property
    def host(self) -> str:
        return str(self.endpoint or _DEFAULT_ENDPOINT)

    def _in_container(self, container: Any) -> Meant:
        account, credentials = str(self.account_name), self.credentials
        names = ("account_key", "sas_token", "tenant_id", "client_id", "client_secret")
        login = {name: credentials[name] for name in names if name in credentials}
        # Without credentials adlfs would use those of the machine; a public container needs none.
        options: dict[str, Any] = {"account_name": account, **(login or {"anon": True})}
        if "://" in self.host:
            # An emulator or a private installation, where the account is part of the path.
            key = credentials.get("account_key", "")
            sas = credentials.get("sas_token", "").lstrip("?")
            secret = f"AccountKey={key}" if key else f"SharedAccessSignature={sas}"
            scheme = self.host.partition("://")[0]
            options = {
                "account_name": account,
                "connection_string": f"DefaultEndpointsProtocol={scheme};AccountName={account};"
                f"{secret};BlobEndpoint={self.host.rstrip('/')};",
            }
        elif self.host != _DEFAULT_ENDPOINT:
            options["account_host"] = f"{account}.blob.{self.host}"
        return f"abfs://{container}", options


class AzureBlobFile(StorageAccountFile):
    kind: ClassVar[str] = "azure_blob"

    container_name: Any = declared(None, "a container of the account", _PLAIN)

    @rule("container_name")
    def _container(self) -> None:
        self._need("container_name")

    @property
    def meant(self) -> Meant:
        return self._in_container(self.container_name)


class DataLakeFile(StorageAccountFile):
    kind: ClassVar[str] = "azure_data_lake_gen2"

    filesystem: Any = declared(None, "a file system of the account", _PLAIN)

    @rule("filesystem")
    def _filesystem(self) -> None:
        self._need("filesystem")

    @property
    def meant(self) -> Meant:
        return self._in_container(self.filesystem)


class FileShareFile(StorageAccountFile):
    kind: ClassVar[str] = "azure_file"

    file_share_name: Any = declared(None, "a share of the account", _PLAIN)
    container_name: Any = declared(None, "as `file_share_name`", _PLAIN)

    @rule("credentials")
    def _login(self) -> None:
        if not self.credentials.keys() & {"account_key", "sas_token"}:
            raise InvalidSpec(
                "an Azure file share is reached by SMB, which needs the account's key",
                "give `credentials: {account_key: …}`; or mount the share on the server and make "
                "a datastore of `type: local`",
                at=["credentials"],
            )

    @property
    def meant(self) -> Meant:
        options = {
            "host": f"{self.account_name}.file.{self.host}",
            "username": str(self.account_name),
        }
        if "account_key" in self.credentials:
            options["password"] = self.credentials["account_key"]
        else:
            options["sas_token"] = self.credentials["sas_token"]
        return f"smb:///{self.file_share_name or self.container_name}", options


class BucketFile(DatastoreFile):
    """What is in a bucket; `kind` is the protocol of its URL."""

    bucket: Any = declared(None, "its name", _PLAIN)
    path: Any = declared(None, "a folder in the bucket", _PLAIN)
    url: Any = declared(None, "`s3://…` or `gs://…`, over `bucket` and `path`", _PLAIN)
    endpoint: Any = declared(None, "the URL of another service", _PLAIN)
    anonymous: Any = declared(None, "`true`: without credentials", _PLAIN)

    @rule("url", "bucket")
    def _whole(self) -> None:
        if self.url and not str(self.url).startswith(f"{self.kind}://"):
            raise InvalidSpec(
                f"`{self.url}` is not of protocol `{self.kind}`",
                f"write `{self.kind}://…`",
                at=["url"],
            )
        if not self.url and not self.bucket:
            raise InvalidSpec(
                "the datastore has no `bucket`", "name it, or give a whole `url`", at=["bucket"]
            )

    @property
    def address(self) -> str:
        return str(self.url or f"{self.kind}://{self.bucket}/{self.path or ''}").rstrip("/")


class S3File(BucketFile):
    kind: ClassVar[str] = "s3"

    region: Any = declared(None, "of the bucket", _PLAIN)
    credentials: dict[str, str] = declared(
        {}, "`{access_key_id, secret_access_key, session_token}`", _credentials(S3Credentials)
    )

    @property
    def meant(self) -> Meant:
        options: dict[str, Any] = {}
        if self.endpoint:
            options["endpoint_url"] = str(self.endpoint)
        if self.region:
            options["client_kwargs"] = {"region_name": str(self.region)}
        names = {"access_key_id": "key", "secret_access_key": "secret", "session_token": "token"}
        options |= {names[key]: secret for key, secret in self.credentials.items()}
        if self.anonymous:
            options["anon"] = True
        return self.address, options


class GoogleFile(BucketFile):
    kind: ClassVar[str] = "gs"

    credentials: dict[str, str] = declared(
        {}, "`{service_account}`", _credentials(GoogleCredentials)
    )

    @property
    def meant(self) -> Meant:
        options: dict[str, Any] = {}
        if self.endpoint:
            options["endpoint_url"] = str(self.endpoint)
        if "service_account" in self.credentials:
            options["token"] = json.loads(self.credentials["service_account"])
        if self.anonymous:
            options["token"] = "anon"
        return self.address, options


class SftpFile(DatastoreFile):
    kind: ClassVar[str] = "sftp"

    host: Any = declared(None, "its name or address", _PLAIN)
    port: int = declared(0, "as of ssh when left out", By(_port))
    username: Any = declared(None, "on the host", _PLAIN)
    path: Any = declared(None, "a folder; default `/`", _PLAIN)
    private_key_file: Any = declared(None, "a file on the server's machine", _PLAIN)
    credentials: dict[str, str] = declared({}, "`{password}`", _credentials(SftpCredentials))

    @rule("host")
    def _host(self) -> None:
        self._need("host")

    @property
    def meant(self) -> Meant:
        options: dict[str, Any] = {"host": str(self.host)}
        if self.port:
            options["port"] = self.port
        if self.username:
            options["username"] = str(self.username)
        if self.private_key_file:
            options["key_filename"] = str(self.private_key_file)
        return "sftp:///" + str(self.path or "/").strip("/"), options | self.credentials


class LocalFile(DatastoreFile):
    kind: ClassVar[str] = "local"

    path: str = declared("", "an absolute path on the server's machine", By(_folder))
    account: Any = declared(None, "the Unix account that reads and writes it", _PLAIN)

    @rule("path")
    def _path(self) -> None:
        self._need("path")

    @property
    def meant(self) -> Meant:
        return f"file://{self.path}", {}


KINDS: Mapping[str, type[DatastoreFile]] = {
    model.kind: model
    for model in (
        AzureBlobFile, DataLakeFile, FileShareFile, S3File, GoogleFile, SftpFile, LocalFile,
    )
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
    model = KINDS[_kind(document)]
    file = model.read(document)
    url, options = file.meant
    public = {
        key: document[key]
        for key in keys(model)
        if key not in keys(DatastoreFile) and document.get(key) is not None
    }
    return Datastore(
        workspace=workspace,
        name=file.name,
        kind=file.kind,
        url=url,
        created_at=now,
        options=options,
        document={**public, "credentials": dict.fromkeys(file.credentials, "********")},
        description=file.description,
        tags=file.tags,
    )


def is_kept_only(datastore: Datastore) -> bool:
    """Whether it is kept for Azure ML's own clients: SMB has no place for a SAS token."""
    return datastore.url.startswith("smb:") and "sas_token" in datastore.options


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
    return protocol if protocol in KINDS and "url" in keys(KINDS[protocol]) else ""
