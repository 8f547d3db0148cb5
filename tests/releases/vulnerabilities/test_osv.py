"""Which versions an OSV entry affects."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.releases.vulnerabilities import osv


def affects(version: str, *events: dict[str, str], versions: tuple[str, ...] = ()) -> bool:
    affected = {
        "package": {"ecosystem": "PyPI", "name": "Torch"},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}] if events else [],
        "versions": list(versions),
    }
    entry = osv.stored_fields({"id": "CVE-1", "affected": [affected]}, [])
    return bool(osv.matching([entry], {"torch": version}))


@pytest.mark.parametrize(
    ("version", "is_affected"),
    [
        ("1.0", True),
        ("1.9.9", True),
        ("2.0rc1", True),
        ("2.0", False),
        ("2.0+cpu", False),
        ("2.0.post1", False),
        ("2.5", False),
        ("3.0", True),
        ("3.1+cu121", True),
        ("3.1.1", False),
    ],
)
def test_ranges_are_compared_by_pep_440(version: str, is_affected: bool) -> None:
    events = (
        {"introduced": "0"}, {"fixed": "2.0"}, {"introduced": "3.0"}, {"last_affected": "3.1"},
    )  # fmt: skip
    assert affects(version, *events) is is_affected
    assert affects(version, *reversed(events)) is is_affected


def test_a_local_build_is_the_version_that_it_builds() -> None:
    assert affects("2.13.0+cpu", {"introduced": "0"}, {"last_affected": "2.13.0"})
    assert affects("2.13.0+cpu", versions=("2.13.0",))
    assert not affects("2.13.0+cpu", {"introduced": "0"}, {"fixed": "2.13.0"})


def test_versions_are_equal_however_they_are_written() -> None:
    assert affects("1.0", versions=("1.0.0",))
    assert not affects("1.0", versions=("1.0.1",))


def test_what_can_not_be_compared_counts_as_affected() -> None:
    assert affects("1.0", {"introduced": "0"}, {"fixed": "not a version"})


def entry(id: str, aliases: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    affected = {
        "package": {"ecosystem": "PyPI", "name": "torch"},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}],
    }
    return osv.stored_fields(
        {"id": id, "aliases": list(aliases), "affected": [affected], **changes}, []
    )


def test_entries_that_name_each_other_are_one() -> None:
    entries = [
        entry("PYSEC-1", ("CVE-1",), published="2026-03-01T00:00:00Z"),
        entry("CVE-2"),
        entry("GHSA-1", ("CVE-1",), published="2026-01-05T00:00:00Z", summary="runs code"),
    ]
    matches = osv.matching(entries, {"torch": "2.0"})
    assert [set(each.ids) for each in matches] == [{"CVE-2"}, {"PYSEC-1", "CVE-1", "GHSA-1"}]
    assert matches[1].published is not None
    assert matches[1].published.isoformat().startswith("2026-01-05")
    assert matches[1].summary == "runs code"


def test_withdrawn_entries_and_other_ecosystems_affect_nothing() -> None:
    withdrawn = entry("CVE-1", withdrawn="2026-01-01T00:00:00Z")
    other = osv.stored_fields(
        {"id": "CVE-2", "affected": [{"package": {"ecosystem": "npm", "name": "torch"}}]}, []
    )
    assert osv.matching([withdrawn, other], {"torch": "2.0"}) == []


@pytest.mark.parametrize("wrong", [[], {"affected": []}, {"id": "x", "affected": [3]}])
def test_what_is_no_entry_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSpec, match="advisory"):
        osv.stored_fields(wrong, ["entries", 0])
