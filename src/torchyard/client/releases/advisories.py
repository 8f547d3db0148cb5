"""Files and folders of advisories in the OSV format, read for a server.

Owns: which files are read, what of an entry is sent, the pieces that a set is sent in.
Leaves: what an entry means to the server.
Always: entries that are not about PyPI stay here; the same entries are the same set.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, NotFound

_AT_ONCE = 500
_MOST_MEMBER_BYTES = 16 << 20
_KEPT = ("id", "aliases", "summary", "published", "withdrawn", "severity")
_HINT = "give a file or folder of https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip"


def pieces(source: Path) -> Iterator[dict[str, Any]]:
    """The documents that the server takes, one after the other; the last one says so.

    Raises:
        NotFound: the file does not exist.
        InvalidInput: it holds no entry about a package of PyPI.
    """
    entries = sorted(_entries(source), key=lambda entry: str(entry["id"]))
    if not entries:
        raise InvalidInput(f"`{source}` holds no advisory about a package of PyPI", _HINT)
    content = hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
    for start in range(0, len(entries), _AT_ONCE):
        yield {
            "set": content,
            "entries": entries[start : start + _AT_ONCE],
            "first": start == 0,
            "last": start + _AT_ONCE >= len(entries),
        }


def _entries(source: Path) -> Iterator[dict[str, Any]]:
    for name, text in _texts(source):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"`{name}` is not JSON: {error}", _HINT) from error
        for entry in document if isinstance(document, list) else [document]:
            if not isinstance(entry, Mapping) or not isinstance(entry.get("id"), str):
                raise InvalidInput(
                    f"`{name}` is not an advisory in the OSV format: it has no `id`", _HINT
                )
            short = _short(entry)
            if short["affected"]:
                yield short


def _texts(source: Path) -> Iterator[tuple[str, bytes]]:
    if source.is_dir():
        for file in sorted(source.rglob("*.json")):
            yield str(file), file.read_bytes()
        return
    if not source.exists():
        raise NotFound(f"`{source}` does not exist", _HINT)
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json"):
                    yield f"{source}/{name}", _member(archive, name)
        return
    if source.suffix == ".jsonl":
        for number, line in enumerate(source.read_bytes().splitlines(), 1):
            if line.strip():
                yield f"{source}:{number}", line
        return
    yield str(source), source.read_bytes()


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as member:
        content = member.read(_MOST_MEMBER_BYTES + 1)
    if len(content) > _MOST_MEMBER_BYTES:
        raise InvalidInput(
            f"`{name}` has more than {_MOST_MEMBER_BYTES >> 20} MiB",
            "an advisory of OSV has some kilobytes; is this an archive of advisories?",
        )
    return content


def _short(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the server needs of an entry: a whole one may be a hundred times as long."""
    affected = [
        {
            "package": each["package"],
            "ranges": [part for part in each.get("ranges") or () if part.get("type") != "GIT"],
            "versions": each.get("versions") or [],
        }
        for each in entry.get("affected") or ()
        if (each.get("package") or {}).get("ecosystem") == "PyPI"
    ]
    fields = {key: entry[key] for key in _KEPT if entry.get(key)}
    summary = " ".join(str(entry.get("summary") or entry.get("details") or "").split())[:300]
    return {**fields, "summary": summary, "affected": affected}
