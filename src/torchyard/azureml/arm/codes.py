"""Code as an Azure Resource Manager resource: what a client uploaded for a job.

Owns: the ARM form of a code, and which upload it names.
Leaves: codes and their snapshots to data/codes.py, uploading to the blob service.
Always: a client finds an earlier upload of the same files by their hash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torchyard.azureml.arm import assets
from torchyard.azureml.arm.resources import (
    Page,
    PageRequest,
    Permissions,
    PutResult,
    Resource,
    VersionAction,
)
from torchyard.azureml.common.calls import Call
from torchyard.azureml.common.errors import NotServed
from torchyard.base.errors import InvalidInput
from torchyard.data import codes, uris
from torchyard.data.codes import Code, CodeRequest, Places
from torchyard.data.uris import DatastoreUri
from torchyard.workspaces.permissions import Permission

_HASH = "hash_sha256"
_SNAPSHOT_ID = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Codes:
    """The `VersionedKind` of codes.

    Args:
        pending_upload: the response to startPendingUpload.
        datastore_uri: the place that a blob's URL means; None for a URL of another server.
    """

    places: Places
    pending_upload: Callable[[Call], Mapping[str, Any]]
    datastore_uri: Callable[[Call, str], DatastoreUri | None]
    permissions: ClassVar = Permissions(actions={"startpendingupload": Permission.UPLOAD})

    @property
    def actions(self) -> Mapping[str, VersionAction]:
        return {"startpendingupload": self._start}

    def list(self, call: Call, request: PageRequest) -> Page:
        by_name: dict[str, list[Code]] = {}
        for code in codes.list_in(self.places, call.workspace.name):
            by_name.setdefault(code.name, []).append(code)
        rows = [(name, _container(name, versions)) for name, versions in by_name.items()]
        return assets.page_of(call, request, rows)

    def get(self, call: Call, name: str) -> Resource:
        versions = codes.list_in(self.places, call.workspace.name, name)
        if not versions:
            codes.get(self.places, call.workspace.name, name, "1")  # raises NotFound
        return _container(name, versions)

    def put_container(self, call: Call, name: str) -> Resource:
        if assets.requested_archived(call):
            raise NotServed("torchyard does not archive code", "no list shows it")
        return self.get(call, name)

    def list_versions(self, call: Call, name: str, request: PageRequest) -> Page:
        """By name; with a hash, those of any name, so that a client need not upload files again."""
        hash = assets.query_value(call, "hash")
        if hash:
            matching = codes.of_hash(self.places, call.workspace.name, hash)
        else:
            matching = codes.list_in(self.places, call.workspace.name, name)
        return assets.page_of(
            call,
            request,
            [(f"{code.name}:{code.version}", _resource(call, code)) for code in matching],
        )

    def get_version(self, call: Call, name: str, version: str) -> Resource:
        return _resource(call, codes.get(self.places, call.workspace.name, name, version))

    def put(self, call: Call, name: str, version: str) -> PutResult:
        uri = self._uri(call)
        fields = assets.described(call)
        document = CodeRequest(
            name,
            version,
            uri,
            fields["properties"].get(_HASH, ""),
            fields["description"],
            fields["tags"],
            fields["properties"],
        )
        code, new = codes.register(self.places, call.workspace.name, document, call.identity.user)
        return PutResult(_resource(call, code), new)

    def delete(self, call: Call, name: str, version: str) -> None:
        codes.drop(self.places, codes.get(self.places, call.workspace.name, name, version))

    def snapshot(self, call: Call, code_id: str) -> str:
        """The snapshot that a job's `codeId` stands for.

        Raises:
            InvalidInput: it is not the id of a code.
            NotFound: the code does not exist, or its files were deleted.
        """
        return snapshot_of_code(self.places, call, code_id)

    def _start(self, call: Call, name: str, version: str) -> Mapping[str, Any]:
        return self.pending_upload(call)

    def _uri(self, call: Call) -> str:
        written = assets.text_property(call, "codeUri")
        at = ["properties", "codeUri"]
        if not written:
            raise InvalidInput("the code has no `codeUri`", "upload its files first", at=at)
        uri = uris.datastore(written, call.workspace.name)
        uri = uri or self.datastore_uri(call, written)
        if uri is None:
            raise InvalidInput(
                f"`{written}` is not in a datastore of workspace `{call.workspace.name}`",
                "upload the code to it, or name `azureml://datastores/<name>/paths/<path>`",
                at=at,
            )
        return str(uri)


def snapshot_of_code(storage: Places, call: Call, code_id: str) -> str:
    """The snapshot that a code's resource path stands for.

    Clients see the snapshot of a component as the name of its code, and send that back for a job.

    Raises:
        InvalidInput: it is not the id of a code.
        NotFound: the code does not exist, or its files were deleted.
    """
    name, version = parse_code_id(call, code_id)
    if version == "1" and _SNAPSHOT_ID.fullmatch(name):
        return storage.blobs.of(call.workspace.name).snapshot(name.lower()).id
    return codes.snapshot_of(storage, codes.get(storage, call.workspace.name, name, version))


def parse_code_id(call: Call, code_id: str) -> tuple[str, str]:
    """(name, version) of a code's resource path.

    Raises:
        InvalidInput: it is not one.
    """
    head, _, below = code_id.removeprefix("azureml:").partition("/codes/")
    name, _, version = below.partition("/versions/")
    if not head.lower().endswith(f"/workspaces/{call.workspace.name.lower()}") or not version:
        raise InvalidInput(
            f"`{code_id}` is not a code of workspace `{call.workspace.name}`",
            "give the job a local folder as `code`: the client uploads it",
            at=["properties", "codeId"],
        )
    return name, version


def _resource(call: Call, code: Code) -> Resource:
    properties = {
        "codeUri": assets.long_uri(call, code.uri),
        "description": code.description,
        "tags": code.tags,
        "properties": code.properties,
        "isAnonymous": True,
        "isArchived": False,
        "provisioningState": "Succeeded",
    }
    path = ("codes", code.name, "versions", code.version)
    return Resource(path, properties, code.created_at, code.owner)


def _container(name: str, versions: list[Code]) -> Resource:
    properties = {
        "description": "",
        "tags": {},
        "properties": {},
        "isArchived": False,
        "latestVersion": versions[0].version,
        "nextVersion": str(len(versions) + 1),
        "provisioningState": "Succeeded",
    }
    return Resource(("codes", name), properties, versions[-1].created_at, versions[-1].owner)
