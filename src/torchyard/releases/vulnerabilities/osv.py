"""Entries in the OSV format: which versions of a package one affects.

Owns: reading an entry, the comparison of versions (PEP 440), entries that mean the same.
Leaves: where entries come from to advisories.py, ages and exceptions to audit.py.
Always: of a version with a local part, as `2.13.0+cpu`, the public part counts; a range that can't
be read affects, so that nothing is passed over in silence; withdrawn entries affect nothing.

Source: https://ossf.github.io/osv-schema/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from packaging.version import InvalidVersion, Version

from torchyard.base.clock import from_text
from torchyard.base.errors import InvalidSpec
from torchyard.environments.packages.requirements import normal

ECOSYSTEM = "PyPI"
_LONGEST_SUMMARY = 300
_PARTS_OF_SECONDS = re.compile(r"\.\d+")
_EVENTS = ("introduced", "fixed", "last_affected", "limit")
# Of an entry, what is kept.
_KEPT = ("id", "aliases", "summary", "published", "withdrawn", "severity")


@dataclass(frozen=True)
class Vulnerability:
    """One that affects a package of an environment. `ids` are all of its names, its own first;
    `fixed` the versions that end it; `published` is None where no entry says when.
    """

    package: str
    version: str
    ids: tuple[str, ...]
    summary: str
    published: datetime | None
    fixed: tuple[str, ...]


def packages_of(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The PyPI packages that an entry is about."""
    names = (_package(affected) for affected in entry.get("affected") or ())
    return tuple(dict.fromkeys(name for name in names if name))


def stored_fields(entry: Any, at: Sequence[str | int]) -> dict[str, Any]:
    """What is stored of an entry.

    Raises:
        InvalidSpec: it is not one.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("id"), str):
        raise InvalidSpec("an advisory is not an entry of OSV", "it needs an `id`", at=at)
    affected = entry.get("affected") or []
    if not isinstance(affected, list) or not all(isinstance(each, Mapping) for each in affected):
        raise InvalidSpec(
            f"advisory `{entry['id'][:80]}`: `affected` is not a list of mappings",
            "send entries as OSV has them",
            at=[*at, "affected"],
        )
    kept_affected = [_kept_affected(each) for each in affected if _package(each)]
    summary = str(entry.get("summary") or entry.get("details") or "")
    fields = {key: entry[key] for key in _KEPT if entry.get(key)}
    return {
        **fields,
        "summary": " ".join(summary.split())[:_LONGEST_SUMMARY],
        "affected": kept_affected,
    }


def matching(
    entries: Iterable[Mapping[str, Any]], packages: Mapping[str, str]
) -> list[Vulnerability]:
    """The vulnerabilities of these packages; entries that name each other are one.

    Args:
        packages: version by normal name.
    """
    matches: list[Vulnerability] = []
    for entry in entries:
        if entry.get("withdrawn"):
            continue
        for package in packages_of(entry):
            version = packages.get(package)
            if version is None:
                continue
            about = [each for each in entry["affected"] if _package(each) == package]
            if any(_affects(each, version) for each in about):
                matches.append(_vulnerability(entry, package, version, about))
    return _joined(matches)


def _package(affected: Mapping[str, Any]) -> str:
    """The normal name; empty where it is of another ecosystem."""
    package = affected.get("package")
    if not isinstance(package, Mapping) or package.get("ecosystem") != ECOSYSTEM:
        return ""
    return normal(str(package.get("name") or ""))


def _kept_affected(affected: Mapping[str, Any]) -> dict[str, Any]:
    ranges = [
        {"type": each.get("type"), "events": each.get("events") or []}
        for each in affected.get("ranges") or ()
        if isinstance(each, Mapping) and each.get("type") != "GIT"
    ]
    return {
        "package": {"ecosystem": ECOSYSTEM, "name": _package(affected)},
        "ranges": ranges,
        "versions": [str(version) for version in affected.get("versions") or ()],
    }


def _affects(affected: Mapping[str, Any], text: str) -> bool:
    version = _version(text)
    for listed in affected.get("versions") or ():
        if str(listed) == text or (version is not None and _version(str(listed)) == version):
            return True
    return any(_is_in(each.get("events") or (), version) for each in affected.get("ranges") or ())


def _is_in(events: Sequence[Mapping[str, Any]], version: Version | None) -> bool:
    """Whether the range of these events holds the version; True where that can't be told."""
    if version is None:
        return bool(events)
    marks: list[tuple[Version, int, str]] = []
    for event in events:
        for kind in _EVENTS:
            if kind not in event:
                continue
            text = str(event[kind])
            mark = Version("0.dev0") if text == "0" else _version(text)
            if mark is None:
                return True
            marks.append((mark, _EVENTS.index(kind), kind))
    inside = False
    for mark, _, kind in sorted(marks):
        if kind == "introduced" and version >= mark:
            inside = True
        elif kind in ("fixed", "limit") and version >= mark:
            inside = False
        elif kind == "last_affected" and version > mark:
            inside = False
    return inside


def _version(text: str) -> Version | None:
    try:
        return Version(Version(text).public)
    except InvalidVersion:
        return None


def _vulnerability(
    entry: Mapping[str, Any], package: str, version: str, about: Sequence[Mapping[str, Any]]
) -> Vulnerability:
    aliases = [str(alias) for alias in entry.get("aliases") or ()]
    events = [event for each in about for part in each["ranges"] for event in part["events"]]
    fixed = dict.fromkeys(str(event["fixed"]) for event in events if "fixed" in event)
    return Vulnerability(
        package,
        version,
        tuple(dict.fromkeys([str(entry["id"]), *aliases])),
        str(entry.get("summary") or ""),
        _published(entry),
        tuple(fixed),
    )


def _published(entry: Mapping[str, Any]) -> datetime | None:
    try:
        # Parts of a second have any number of digits, which Python reads since 3.11.
        return from_text(_PARTS_OF_SECONDS.sub("", str(entry["published"])))
    except (KeyError, ValueError):
        return None


def _joined(matches: Sequence[Vulnerability]) -> list[Vulnerability]:
    """Those of one package that share a name become one, published when the first of them was."""
    joined: list[Vulnerability] = []
    for each in matches:
        same = [
            other
            for other in joined
            if other.package == each.package and set(other.ids) & set(each.ids)
        ]
        for other in same:
            joined.remove(other)
            each = _with(other, each)
        joined.append(each)
    return sorted(joined, key=lambda each: (each.package, each.ids))


def _with(left: Vulnerability, other: Vulnerability) -> Vulnerability:
    times = [each.published for each in (left, other) if each.published is not None]
    return Vulnerability(
        left.package,
        left.version,
        tuple(dict.fromkeys([*left.ids, *other.ids])),
        left.summary or other.summary,
        min(times) if times else None,
        tuple(dict.fromkeys([*left.fixed, *other.fixed])),
    )
