"""A workspace's own environments: names, versions, archiving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound
from torchyard.environments import assets, definition
from torchyard.environments.types import EnvironmentAsset, Platform

LINUX = Platform("linux", "x86_64", "cpu")


def check(request: Mapping[str, Any]) -> Any:
    return definition.resolve(request, LINUX)


def put(db: Database, clock: Clock, **document: Any) -> EnvironmentAsset:
    request = assets.read_document({"name": "mine", **document})
    return assets.register(db, clock, "default", request, "me", check)


def test_versions_are_numbered(db: Database, clock: Clock) -> None:
    first = put(db, clock, pip_requirements=["six==1.15.0"])
    put(db, clock, pip_requirements=["six==1.16.0"], version="7")
    third = put(db, clock, pip_requirements=["six==1.17.0"], version=None)
    assert (first.version, third.version) == ("1", "8")
    assert assets.get(db, "default", "mine") == third
    assert assets.get(db, "default", "mine", "1") == first
    assert [asset.version for asset in assets.list_in(db, "default", "mine")] == ["8", "7", "1"]
    assert [asset.version for asset in assets.list_in(db, "default")] == ["8"]
    assert assets.list_in(db, "other") == []


def test_only_the_description_of_a_version_changes(db: Database, clock: Clock) -> None:
    put(db, clock, version="1", pip_requirements=["six==1.15.0"], tags={"a": "1"})
    again = put(db, clock, version=1, pip_requirements=["six==1.15.0"], description="better")
    assert (again.description, again.tags) == ("better", {})
    assert assets.list_in(db, "default", "mine") == [again]
    with pytest.raises(Conflict, match="another content") as refused:
        put(db, clock, version="1", pip_requirements=["six==1.16.0"])
    assert "leave `version` out" in refused.value.hint
    assert assets.get(db, "default", "mine", "1").definition == {
        "pip_requirements": ["six==1.15.0"]
    }


def test_archived_environments_are_hidden_and_still_found(db: Database, clock: Clock) -> None:
    for number in ("15", "16"):
        put(db, clock, pip_requirements=[f"six==1.{number}.0"])
    assets.archive(db, "default", "mine", "2", user="me")
    assert [asset.version for asset in assets.list_in(db, "default", "mine")] == ["1"]
    assert assets.get(db, "default", "mine").version == "1"
    assert assets.get(db, "default", "mine", "2").archived
    assets.archive(db, "default", "mine", user="me")
    assert assets.list_in(db, "default") == []
    assert assets.get(db, "default", "mine").version == "2"
    assets.archive(db, "default", "mine", archived=False, user="me")
    assert len(assets.list_in(db, "default", "mine")) == 2


@pytest.mark.parametrize(
    "name",
    ["AzureML-mine", "azureml_mine", "AZUREMLX", "Microsoft", "microsoft-torch", "sklearn-1.5",
     "Python", "acpt-pytorch-2.13-cpu"],
)  # fmt: skip
def test_names_of_curated_environments_are_reserved(db: Database, clock: Clock, name: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        put(db, clock, name=name, pip_requirements=["six"])
    assert (refused.value.code, refused.value.at) == ("reserved_name", ("name",))
    assert assets.list_in(db, "default") == []


@pytest.mark.parametrize(
    ("document", "at"),
    [
        ({"name": "", "pip_requirements": []}, ("name",)),
        ({"name": "a/b", "pip_requirements": []}, ("name",)),
        ({"name": "mine\n", "pip_requirements": []}, ("name",)),
        ({"version": "1\n", "pip_requirements": []}, ("version",)),
        ({"version": "a b", "pip_requirements": []}, ("version",)),
        ({"tags": ["a"], "pip_requirements": []}, ("tags",)),
        ({"pip_requirement": ["six"]}, ("pip_requirement",)),
        ({}, ()),
        ({"image": "me own:1"}, ("image",)),
        ({"build": {"path": "/somewhere"}}, ("build", "path")),
    ],
)
def test_bad_documents(
    db: Database, clock: Clock, document: dict[str, Any], at: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        put(db, clock, **document)
    assert tuple(refused.value.at) == at
    assert assets.list_in(db, "default") == []


def test_the_nearest_name_is_offered(db: Database, clock: Clock) -> None:
    put(db, clock, name="vision", pip_requirements=["six"])
    with pytest.raises(NotFound) as refused:
        assets.get(db, "default", "visoin")
    assert "`vision`" in refused.value.hint
