"""Data, environments, models and components: what ARM asks of all of them alike.

Owns: versions and their containers, which of them a list shows, archiving, names in another case.
Leaves: what is in a version to its noun, a few lines over a room's actions.
Always: a version that is put again as it is stays as it is; one of another content is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from torchyard.assets import versions
from torchyard.azureml.arm.resources import Ask, Made, Page, Resource, VersionVerb
from torchyard.azureml.common.calls import Call
from torchyard.base import fields
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.data import uris
from torchyard.data.uris import DatastoreUri

OfBlob = Callable[[Call, str], DatastoreUri | None]
"""What a blob's address means; None for one that is none of ours. See blob/links.py."""

_VIEWS: dict[str, bool | None] = {"activeonly": False, "archivedonly": True, "all": None}


@dataclass(frozen=True)
class Version:
    """One version of an asset. `said` are its properties beside those that all assets have, and
    `of_name` those that its container has besides.
    """

    name: str
    version: str
    created_at: datetime
    owner: str
    description: str
    tags: Mapping[str, str]
    properties: Mapping[str, str]
    archived: bool
    said: Mapping[str, Any]
    anonymous: bool = False
    modified_at: datetime | None = None
    of_name: Mapping[str, Any] = field(default_factory=dict)


class Asset(Protocol):
    """What an asset of ours has whose version is a text."""

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


def version_of(asset: Asset, said: Mapping[str, Any], **more: Any) -> Version:
    """What all assets of ours say alike; `more` are other fields of `Version`."""
    return Version(
        name=asset.name,
        version=asset.version,
        created_at=asset.created_at,
        owner=asset.owner,
        description=asset.description,
        tags=asset.tags,
        properties=asset.properties,
        archived=asset.archived,
        said=said,
        **more,
    )


class Noun(Protocol):
    """A kind of asset; `word` is ours for one, `type` is ARM's."""

    type: str
    word: str

    def every(self, call: Call) -> Sequence[Version]:
        """All versions of all names that lists show, archived ones too; newest first."""
        ...

    def of(self, call: Call, name: str) -> Sequence[Version]:
        """All versions of a name, newest first.

        Raises:
            NotFound: there is no such name.
        """
        ...

    def one(self, call: Call, name: str, version: str) -> Version:
        """
        Raises:
            NotFound: there is none.
        """
        ...

    def next(self, call: Call, name: str, known: Sequence[Version]) -> str:
        """The version that the name gets next."""
        ...

    def put(self, call: Call, name: str, version: str) -> tuple[Version, bool]:
        """The version that the call's body asks for, and whether it is new.

        Raises:
            Conflict: it exists with another content.
        """
        ...

    def archive(self, call: Call, name: str, version: str, archived: bool) -> None:
        """One version, or all of the name for an empty one."""
        ...

    def delete(self, call: Call, name: str, version: str) -> None: ...


class Assets:
    """The `VersionedKind` of a noun."""

    def __init__(self, noun: Noun, verbs: Mapping[str, VersionVerb] | None = None) -> None:
        self.type = noun.type
        self.verbs = verbs or {}
        self._noun = noun

    def list(self, call: Call, ask: Ask) -> Page:
        by_name: dict[str, list[Version]] = {}
        for version in self._noun.every(call):
            by_name.setdefault(version.name, []).append(version)
        shown = [
            name for name, of in by_name.items() if of_view(call, all(one.archived for one in of))
        ]
        names, following = paged(call, ask, sorted(shown, key=str.lower))
        return Page([self._container(call, by_name[name]) for name in names], following)

    def get(self, call: Call, name: str) -> Resource:
        return self._container(call, self._noun.of(call, self._spelled(call, name)))

    def put_container(self, call: Call, name: str) -> Resource:
        known = self._noun.of(call, self._spelled(call, name))
        shown = self._container(call, known).properties or {}
        asked = call.properties
        for key in ("description", "tags", "properties"):
            if asked.get(key) not in (None, "", {}, shown.get(key)):
                raise InvalidInput(
                    f"`{key}` of the {self._noun.word} `{name}` as a whole can't be changed",
                    f"give {key} to a version",
                    at=["properties", key],
                )
        archived = archived_asked(call)
        if archived not in (None, shown["isArchived"]):
            self._noun.archive(call, known[0].name, "", bool(archived))
        return self.get(call, known[0].name)

    def versions(self, call: Call, name: str, ask: Ask) -> Page:
        known = self._noun.of(call, self._spelled(call, name))
        shown = [one for one in known if of_view(call, one.archived) and _of_stage(call, one)]
        if "asc" in asked_of(call, "orderby").lower().split():
            shown.reverse()
        return listed(call, ask, [(one.version, self._resource(one)) for one in shown])

    def version(self, call: Call, name: str, version: str) -> Resource:
        return self._resource(self._noun.one(call, self._spelled(call, name), version))

    def put(self, call: Call, name: str, version: str) -> Made:
        name = self._spelled(call, name)
        if call.method == "PATCH":
            before = self._resource(self._noun.one(call, name, version))
            call = replace(
                call, body={"properties": {**(before.properties or {}), **call.properties}}
            )
        archived = archived_asked(call)
        made, new = self._noun.put(call, name, version)
        if archived not in (None, made.archived):
            self._noun.archive(call, made.name, made.version, bool(archived))
            made = self._noun.one(call, made.name, made.version)
        return Made(self._resource(made), new)

    def delete(self, call: Call, name: str, version: str) -> None:
        self._noun.delete(call, self._spelled(call, name), version)

    def _spelled(self, call: Call, name: str) -> str:
        """ARM's names are the same in any case; ours are kept as they were written first."""
        try:
            return self._noun.of(call, name)[0].name
        except NotFound:
            names = {one.name for one in self._noun.every(call)}
            return spelled(name, names)

    def _resource(self, one: Version) -> Resource:
        properties = {
            "description": one.description,
            "tags": dict(one.tags),
            "properties": dict(one.properties),
            "isArchived": one.archived,
            "isAnonymous": one.anonymous,
            "provisioningState": "Succeeded",
            **one.said,
        }
        return Resource(
            (self.type, one.name, "versions", one.version),
            properties,
            one.created_at,
            one.owner,
            one.modified_at,
        )

    def _container(self, call: Call, known: Sequence[Version]) -> Resource:
        newest = next((one for one in known if not one.archived), known[0])
        properties = {
            "description": "",
            "tags": {},
            "properties": {},
            "latestVersion": newest.version,
            "nextVersion": self._noun.next(call, newest.name, known),
            "isArchived": all(one.archived for one in known),
            "provisioningState": "Succeeded",
            **newest.of_name,
        }
        first = known[-1]
        return Resource(
            (self.type, newest.name), properties, first.created_at, first.owner, newest.created_at
        )


def of_view(call: Call, archived: bool) -> bool:
    """Whether a list shows what is archived, or isn't.

    Raises:
        InvalidInput: `listViewType` is none of Azure's.
    """
    asked = asked_of(call, "listviewtype") or "ActiveOnly"
    if asked.lower() not in _VIEWS:
        raise InvalidInput(
            f"`listViewType` is `{asked[:40]}`", "use ActiveOnly, ArchivedOnly or All"
        )
    return _VIEWS[asked.lower()] in (None, archived)


def asked_of(call: Call, key: str) -> str:
    """A key of the query, in any case and with or without `$`; empty when it is not there."""
    return next(
        (value for name, value in call.query.items() if name.lower().lstrip("$") == key), ""
    )


def listed(call: Call, ask: Ask, rows: Sequence[tuple[str, Resource]]) -> Page:
    """A page of what has names."""
    by_name = dict(rows)
    names, following = paged(call, ask, list(by_name))
    return Page([by_name[name] for name in names], following)


def paged(call: Call, ask: Ask, names: Sequence[str]) -> tuple[Sequence[str], str]:
    """The names of one page and the last of them, empty when no other page follows.

    `$top` is all that is wanted; other sizes are those of pages.
    """
    start = names.index(ask.after) + 1 if ask.after in names else 0
    end = start + ask.most
    more = end < len(names) and not asked_of(call, "top")
    return names[start:end], names[end - 1] if more else ""


def archived_asked(call: Call) -> bool | None:
    """`isArchived` of the body; None when it doesn't say.

    Raises:
        InvalidInput: it is neither true nor false.
    """
    found = call.properties.get("isArchived")
    if found is not None and not isinstance(found, bool):
        raise InvalidInput(
            f"`isArchived` is `{found!s:.40}`", "true or false", at=["properties", "isArchived"]
        )
    return found


def words(call: Call) -> dict[str, Any]:
    """What is said of a version, in the keys of our documents; what is null is left out.

    Raises:
        InvalidInput: one of them has another form.
    """
    asked = call.properties
    description = asked.get("description") or ""
    if not isinstance(description, str):
        raise InvalidInput("`description` is no text", at=["properties", "description"])
    found: dict[str, Any] = {"description": description}
    for key in ("tags", "properties"):
        given = fields.texts(asked, key)
        found[key] = {name: text for name, text in given.items() if asked[key][name] is not None}
    return found


def text_of(call: Call, key: str) -> str:
    """A property that is text, empty when it is not there.

    Raises:
        InvalidInput: it is something else.
    """
    found = call.properties.get(key)
    if found is not None and not isinstance(found, str):
        raise InvalidInput(f"`{key}` is no text", at=["properties", key])
    return (found or "").strip()


def spelled(name: str, names: Iterable[str]) -> str:
    """The name among `names` that differs only in case; `name` itself when there is none."""
    return next((one for one in sorted(names) if one.lower() == name.lower()), name)


def next_of(known: Iterable[Version]) -> str:
    return versions.next_of(one.version for one in known)


def long_uri(call: Call, uri: str) -> str:
    """A datastore URI as Azure writes it, with its workspace; any other as it is."""
    if not uri.startswith("azureml://datastores/"):
        return uri
    here = call.workspace
    return (
        f"azureml://subscriptions/{here.subscription_id}/resourcegroups/{here.resource_group}"
        f"/workspaces/{here.name}/{uri.removeprefix('azureml://')}"
    )


def short_uri(call: Call, uri: str, of_blob: OfBlob) -> str:
    """A place in a datastore as we write it, whether it is said by a datastore URI or by a blob's
    address; any other as it is.

    Raises:
        NotFound: it lies in another workspace.
    """
    found = uris.datastore(uri, call.workspace.name) or of_blob(call, uri)
    return uri if found is None else str(found)


def changed(word: str, name: str, version: str, what: str) -> Conflict:
    """What to raise when a version is put with another content."""
    return Conflict(
        f"{word} `{name}` has a version `{version}` already, with another {what}",
        "a version never changes: leave the version out to get the next one",
        code="version_exists",
    )


def kept(word: str) -> Conflict:
    """What to raise when a version is to be deleted."""
    return Conflict(
        f"a version of {word} can't be deleted: jobs that used it name it", "archive it"
    )


def _of_stage(call: Call, one: Version) -> bool:
    asked = asked_of(call, "stage")
    return not asked or str(one.said.get("stage") or "").lower() == asked.lower()
