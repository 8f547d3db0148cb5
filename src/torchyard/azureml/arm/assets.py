"""Data, environments, models and components: what ARM's routes do for all of them alike.

Owns: versions and their containers, which of them a list shows, archiving, names in another case.
Leaves: the content of a version to its kind, a few lines over another package's actions.
Always: putting a version again changes nothing; a version with another content is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from torchyard.assets import versions
from torchyard.azureml.arm.resources import Page, PageRequest, PutResult, Resource, VersionAction
from torchyard.azureml.common.calls import Call
from torchyard.base import fields, refs
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.data import uris
from torchyard.data.uris import DatastoreUri

DatastoreUriOf = Callable[[Call, str], DatastoreUri | None]
"""The place in a datastore that a blob's URL means; None for a URL of another server. See
blob/links.py.
"""

_VIEWS: dict[str, bool | None] = {"activeonly": False, "archivedonly": True, "all": None}


@dataclass(frozen=True)
class AssetVersion:
    """One version of an asset. `type_properties` are its properties besides those that all assets
    have, and `container_properties` those that only its container has.
    """

    name: str
    version: str
    created_at: datetime
    owner: str
    description: str
    tags: Mapping[str, str]
    properties: Mapping[str, str]
    archived: bool
    type_properties: Mapping[str, Any]
    anonymous: bool = False
    modified_at: datetime | None = None
    container_properties: Mapping[str, Any] = field(default_factory=dict)


class Asset(Protocol):
    """What every asset has whose version is a text."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def owner(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def archived(self) -> bool: ...


def version_of(asset: Asset, type_properties: Mapping[str, Any], **fields: Any) -> AssetVersion:
    """What all assets have in common; `fields` are other fields of `AssetVersion`."""
    return AssetVersion(
        name=asset.name,
        version=asset.version,
        created_at=asset.created_at,
        owner=asset.owner,
        description=asset.description,
        tags=asset.tags,
        properties=asset.properties,
        archived=asset.archived,
        type_properties=type_properties,
        **fields,
    )


class AssetKind(Protocol):
    """A kind of asset; `noun` is its name in messages, `type` is ARM's."""

    type: str
    noun: str

    def list_all(self, call: Call) -> Sequence[AssetVersion]:
        """All versions of all names that lists show, including archived ones; newest first."""
        ...

    def list_versions(self, call: Call, name: str) -> Sequence[AssetVersion]:
        """All versions of a name, newest first.

        Raises:
            NotFound: the name does not exist.
        """
        ...

    def get(self, call: Call, name: str, version: str) -> AssetVersion:
        """
        Raises:
            NotFound: there is none.
        """
        ...

    def next_version(self, call: Call, name: str, versions: Sequence[AssetVersion]) -> str:
        """The version that the name gets next."""
        ...

    def put(self, call: Call, name: str, version: str) -> tuple[AssetVersion, bool]:
        """The version that the call's body describes, and whether it is new.

        Raises:
            Conflict: it exists with another content.
        """
        ...

    def archive(self, call: Call, name: str, version: str, archived: bool) -> None:
        """One version, or all of the name for an empty one."""
        ...

    def delete(self, call: Call, name: str, version: str) -> None: ...


class AssetResources:
    """The `VersionedKind` of a kind of asset."""

    def __init__(self, kind: AssetKind, actions: Mapping[str, VersionAction] | None = None) -> None:
        self.actions = actions or {}
        self._kind = kind

    def list(self, call: Call, request: PageRequest) -> Page:
        by_name: dict[str, list[AssetVersion]] = {}
        for version in self._kind.list_all(call):
            by_name.setdefault(version.name, []).append(version)
        visible = [
            name
            for name, versions in by_name.items()
            if of_view(call, all(version.archived for version in versions))
        ]
        names, following = page_names(call, request, sorted(visible, key=str.lower))
        return Page([self._container(call, by_name[name]) for name in names], following)

    def get(self, call: Call, name: str) -> Resource:
        return self._container(call, self._kind.list_versions(call, self._spelled(call, name)))

    def put_container(self, call: Call, name: str) -> Resource:
        versions = self._kind.list_versions(call, self._spelled(call, name))
        before = self._container(call, versions).properties or {}
        requested = call.properties
        for key in ("description", "tags", "properties"):
            if requested.get(key) not in (None, "", {}, before.get(key)):
                raise InvalidInput(
                    f"`{key}` can't be changed for all versions of the {self._kind.noun} `{name}`",
                    f"set {key} of a version",
                    at=["properties", key],
                )
        archived = requested_archived(call)
        if archived not in (None, before["isArchived"]):
            self._kind.archive(call, versions[0].name, "", bool(archived))
        return self.get(call, versions[0].name)

    def list_versions(self, call: Call, name: str, request: PageRequest) -> Page:
        versions = self._kind.list_versions(call, self._spelled(call, name))
        visible = [
            version
            for version in versions
            if of_view(call, version.archived) and _of_stage(call, version)
        ]
        if "asc" in query_value(call, "orderby").lower().split():
            visible.reverse()
        return page_of(
            call, request, [(version.version, self._resource(version)) for version in visible]
        )

    def get_version(self, call: Call, name: str, version: str) -> Resource:
        return self._resource(self._kind.get(call, self._spelled(call, name), version))

    def put(self, call: Call, name: str, version: str) -> PutResult:
        name = self._spelled(call, name)
        if call.method == "PATCH":
            before = self._resource(self._kind.get(call, name, version))
            call = replace(
                call, body={"properties": {**(before.properties or {}), **call.properties}}
            )
        archived = requested_archived(call)
        result, new = self._kind.put(call, name, version)
        if archived not in (None, result.archived):
            self._kind.archive(call, result.name, result.version, bool(archived))
            result = self._kind.get(call, result.name, result.version)
        return PutResult(self._resource(result), new)

    def delete(self, call: Call, name: str, version: str) -> None:
        self._kind.delete(call, self._spelled(call, name), version)

    def _spelled(self, call: Call, name: str) -> str:
        """ARM ignores the case of names; we keep them as they were first written."""
        try:
            return self._kind.list_versions(call, name)[0].name
        except NotFound:
            names = {version.name for version in self._kind.list_all(call)}
            return match_case(name, names)

    def _resource(self, version: AssetVersion) -> Resource:
        properties = {
            "description": version.description,
            "tags": dict(version.tags),
            "properties": dict(version.properties),
            "isArchived": version.archived,
            "isAnonymous": version.anonymous,
            "provisioningState": "Succeeded",
            **version.type_properties,
        }
        return Resource(
            (self._kind.type, version.name, "versions", version.version),
            properties,
            version.created_at,
            version.owner,
            version.modified_at,
        )

    def _container(self, call: Call, versions: Sequence[AssetVersion]) -> Resource:
        newest = next((version for version in versions if not version.archived), versions[0])
        properties = {
            "description": "",
            "tags": {},
            "properties": {},
            "latestVersion": newest.version,
            "nextVersion": self._kind.next_version(call, newest.name, versions),
            "isArchived": all(version.archived for version in versions),
            "provisioningState": "Succeeded",
            **newest.container_properties,
        }
        first = versions[-1]
        return Resource(
            (self._kind.type, newest.name),
            properties,
            first.created_at,
            first.owner,
            newest.created_at,
        )


def of_view(call: Call, archived: bool) -> bool:
    """Whether a list shows items that are archived, or that are not.

    Raises:
        InvalidInput: `listViewType` is not one of Azure's.
    """
    view = query_value(call, "listviewtype") or "ActiveOnly"
    if view.lower() not in _VIEWS:
        raise InvalidInput(
            f"`listViewType` is `{view[:40]}`", "use ActiveOnly, ArchivedOnly or All"
        )
    return _VIEWS[view.lower()] in (None, archived)


def query_value(call: Call, key: str) -> str:
    """A key of the query, in any case and with or without `$`; empty when it is not there."""
    return next(
        (value for name, value in call.query.items() if name.lower().lstrip("$") == key), ""
    )


def page_of(call: Call, request: PageRequest, rows: Sequence[tuple[str, Resource]]) -> Page:
    """A page of named resources."""
    by_name = dict(rows)
    names, following = page_names(call, request, list(by_name))
    return Page([by_name[name] for name in names], following)


def page_names(call: Call, request: PageRequest, names: Sequence[str]) -> tuple[Sequence[str], str]:
    """The names of one page and the last of them, empty when no other page follows.

    `$top` limits the whole list; other parameters limit a page.
    """
    start = names.index(request.after) + 1 if request.after in names else 0
    end = start + request.limit
    has_more = end < len(names) and not query_value(call, "top")
    return names[start:end], names[end - 1] if has_more else ""


def requested_archived(call: Call) -> bool | None:
    """`isArchived` of the body; None when it is missing.

    Raises:
        InvalidInput: it is neither true nor false.
    """
    archived = call.properties.get("isArchived")
    if archived is not None and not isinstance(archived, bool):
        raise InvalidInput(
            f"`isArchived` is `{archived!s:.40}`",
            "it must be true or false",
            at=["properties", "isArchived"],
        )
    return archived


def described(call: Call) -> dict[str, Any]:
    """Description, tags and properties of a version, in the keys of our documents, without null
    values.

    Raises:
        InvalidInput: one of them has the wrong type.
    """
    properties = call.properties
    description = properties.get("description") or ""
    if not isinstance(description, str):
        raise InvalidInput("`description` is not a string", at=["properties", "description"])
    document: dict[str, Any] = {"description": description}
    for key in ("tags", "properties"):
        texts = fields.texts(properties, key)
        document[key] = {
            name: text for name, text in texts.items() if properties[key][name] is not None
        }
    return document


def text_property(call: Call, key: str) -> str:
    """A property that is text, empty when it is not there.

    Raises:
        InvalidInput: it is something else.
    """
    value = call.properties.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"`{key}` is not a string", at=["properties", key])
    return (value or "").strip()


def match_case(name: str, names: Iterable[str]) -> str:
    """The name among `names` that differs only in case; `name` itself when there is none."""
    return next(
        (candidate for candidate in sorted(names) if candidate.lower() == name.lower()), name
    )


def next_version(existing: Iterable[AssetVersion]) -> str:
    return versions.next_of(version.version for version in existing)


def long_uri(call: Call, uri: str) -> str:
    """A datastore URI as Azure writes it, with its workspace; any other URI unchanged."""
    if not uri.startswith("azureml://datastores/"):
        return uri
    workspace = call.workspace
    return (
        f"azureml://subscriptions/{workspace.subscription_id}/resourcegroups/{workspace.resource_group}"
        f"/workspaces/{workspace.name}/{uri.removeprefix('azureml://')}"
    )


def version_id(call: Call, type: str, reference: str) -> str:
    """The resource path of `azureml:name:version`; any other reference as Azure writes it."""
    try:
        ref = refs.parse(reference)
    except InvalidInput:
        return long_uri(call, reference)
    if ref.registry or not ref.version:
        return long_uri(call, reference)
    return call.id(type, ref.name, "versions", ref.version)


def short_uri(call: Call, uri: str, of_blob: DatastoreUriOf) -> str:
    """A place in a datastore as we write it, given as a datastore URI or a blob's URL; any other
    URI unchanged.

    Raises:
        NotFound: it is in another workspace.
    """
    datastore_uri = uris.datastore(uri, call.workspace.name) or of_blob(call, uri)
    return uri if datastore_uri is None else str(datastore_uri)


def content_conflict(noun: str, name: str, version: str, difference: str) -> Conflict:
    """The error when a version is put with another content."""
    return Conflict(
        f"{noun} `{name}` has a version `{version}` already, with another {difference}",
        "a version never changes: leave the version out to get the next one",
        code="version_exists",
    )


def not_deletable(noun: str) -> Conflict:
    """The error when a version is to be deleted."""
    return Conflict(
        f"a version of {noun} can't be deleted: jobs that used it name it", "archive it"
    )


def _of_stage(call: Call, version: AssetVersion) -> bool:
    stage = query_value(call, "stage")
    return not stage or str(version.type_properties.get("stage") or "").lower() == stage.lower()
