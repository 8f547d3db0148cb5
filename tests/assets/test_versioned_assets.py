"""Versions of a name: which is the newest, what archiving hides, what an error suggests."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from torchyard.assets import versions
from torchyard.assets.versioned_assets import VersionedAssets
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.data import store
from torchyard.data.types import DataAsset
from torchyard.workspaces import ownership

WORKSPACE = "default"
TABLE = store.asset_versions
MADE = datetime(2026, 1, 1, tzinfo=timezone.utc)

assets = VersionedAssets("data", TABLE, ownership.Assets(), lambda: ["a-curated-name"])


def add(db: Database, name: str, *numbers: str) -> None:
    with db.write() as connection:
        for number in numbers:
            TABLE.add(connection, DataAsset(WORKSPACE, name, number, "uri_file", "uri", MADE, "me"))


def numbers_of(db: Database, name: str = "", archived: bool | None = False) -> list[str]:
    listed = assets.list_in(db, WORKSPACE, name, archived)
    return [f"{asset.name}:{asset.version}" for asset in listed]


def test_the_newest_is_the_one_made_last(db: Database) -> None:
    add(db, "sets", "2", "10", "1")
    assert assets.get(db, WORKSPACE, "sets").version == "1"
    assert numbers_of(db, "sets") == ["sets:1", "sets:10", "sets:2"]
    assert versions.next_of(asset.version for asset in assets.list_versions(db, WORKSPACE)) == "11"


def test_an_archived_version_is_hidden_until_it_is_restored(db: Database) -> None:
    add(db, "sets", "1", "2")
    add(db, "other", "1")
    assert assets.archive(db, WORKSPACE, "sets", "latest", user="me").version == "2"
    assert numbers_of(db) == ["other:1", "sets:1"]
    assert numbers_of(db, "sets", archived=True) == ["sets:2"]
    assert assets.get(db, WORKSPACE, "sets").version == "1"
    assert not assets.archive(db, WORKSPACE, "sets", "2", archived=False, user="me").archived
    assert numbers_of(db, "sets") == ["sets:2", "sets:1"]


def test_all_versions_of_a_name_are_archived_at_once(db: Database) -> None:
    add(db, "sets", "1", "2")
    add(db, "other", "1")
    assert assets.archive(db, WORKSPACE, "sets", user="me").archived
    assert numbers_of(db) == ["other:1"]
    assert numbers_of(db, "sets", archived=None) == ["sets:2", "sets:1"]
    assert assets.get(db, WORKSPACE, "sets").version == "2"


def test_only_the_words_about_a_version_change(db: Database) -> None:
    add(db, "sets", "1", "2")
    changed = replace(
        assets.get(db, WORKSPACE, "sets", "1"), description="new", tags={"a": "b"}, uri="other"
    )
    with db.write() as connection:
        TABLE.describe(connection, changed)
    asset = assets.get(db, WORKSPACE, "sets", "1")
    assert (asset.description, asset.tags, asset.uri) == ("new", {"a": "b"}, "uri")
    assert assets.get(db, WORKSPACE, "sets", "2").description == ""


@pytest.mark.parametrize(
    ("name", "version", "hint"),
    [
        ("sets", "3", "it has 2, 10"),
        ("sets", "best", "it has 2, 10; the newest is `sets@latest`"),
        ("set", "1", "did you mean `sets`?"),
        ("a-curated-nam", "1", "did you mean `a-curated-name`?"),
        ("nothing-like-it", "1", "list what exists with `yard data list`"),
    ],
)
def test_an_error_says_what_exists(db: Database, name: str, version: str, hint: str) -> None:
    add(db, "sets", "10", "2")
    with pytest.raises(NotFound) as error:
        assets.get(db, WORKSPACE, name, version)
    assert error.value.hint == hint


def test_a_workspace_that_is_deleted_takes_its_assets_along(db: Database) -> None:
    add(db, "sets", "1")
    with db.write() as connection:
        assets.delete_all(connection, "another")
        assert len(TABLE.list_in(connection, WORKSPACE)) == 1
        assets.delete_all(connection, WORKSPACE)
        assert TABLE.list_in(connection, WORKSPACE) == []
