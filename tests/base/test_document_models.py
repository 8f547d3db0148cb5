"""Reading documents by their models: every fault once, in order, at its place."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from torchyard.base.documents.checks import By, Choice, Holds, Key, Text, Texts, Truth, Whole, Word
from torchyard.base.documents.faults import entries
from torchyard.base.documents.models import Document, File, declared, refused, rule
from torchyard.base.documents.pages import table, walk
from torchyard.base.errors import InvalidSpec


class Probe(Document):
    period: int = declared(10, "seconds between two", Whole(1, 60, is_period=True))
    timeout: int = declared(2, check=Whole(1, 60))

    @rule("period", "timeout")
    def _order(self) -> None:
        if self.timeout > self.period:
            raise InvalidSpec("`timeout` is longer than `period`", at=("timeout",))


class Server(File):
    subject: ClassVar[str] = "the server"

    name: str = declared("", "its name", Text())
    kind: str = declared(
        "small", check=Choice(small=Key("the default"), huge=Key("take two", "refused"))
    )
    mode: str = declared("open", check=Word("read_only", "open"))
    probe: Probe = declared(Probe(), "see below")
    others: dict[str, Probe] = declared(
        {},
        "by name",
        By(
            lambda value, at: entries(value, at, Probe.read),
            of=Probe,
            is_named=True,
        ),
    )
    tags: dict[str, str] = declared({}, check=Texts())
    is_public: bool = declared(False, check=Truth())
    location: Any = declared(
        "here", check=Holds("here", "there is one machine"), support="satisfied"
    )
    network: None = refused("leave it out")

    @rule("name")
    def _named(self) -> None:
        if not self.name:
            raise InvalidSpec("the server has no `name`", "give it one")


def faults(document: Any) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(InvalidSpec) as raised:
        Server.read(document)
    return [(each.at, each.code) for each in (raised.value, *raised.value.others)]


def test_what_is_written_is_read_and_the_rest_has_its_default() -> None:
    server = Server.read(
        {"name": "a", "mode": "ReadOnly", "probe": {"period": "PT20S", "timeout": 3.0},
         "is_public": "True", "tags": {"n": 1}, "kind": None, "$schema": "x", "network": {}}
    )  # fmt: skip
    assert (server.mode, server.kind, server.tags) == ("read_only", "small", {"n": "1"})
    assert (server.probe.period, server.probe.timeout, server.is_public) == (20, 3, True)


def test_nine_faults_are_nine_in_the_order_of_the_document() -> None:
    document = {
        "tags": [1],
        "nmae": "a",
        "kind": "huge",
        "probe": {"period": 0, "extra": 1, "timeout": True},
        "is_public": "perhaps",
        "location": "there",
        "network": "x",
    }
    assert faults(document) == [
        (("tags",), "invalid_spec"),
        (("nmae",), "invalid_spec"),
        (("kind",), "not_served"),
        (("probe", "period"), "invalid_spec"),
        (("probe", "extra"), "invalid_spec"),
        (("probe", "timeout"), "invalid_spec"),
        (("is_public",), "invalid_spec"),
        (("location",), "not_served"),
        (("network",), "not_served"),
    ]


def test_what_a_misspelt_key_holds_is_read_as_that_of_the_right_one() -> None:
    document = {"nmae": 1, "porbe": {"period": 0, "tiemout": 30, "timout": 3}}
    assert [at for at, _ in faults(document)] == [
        ("nmae",), ("porbe",), ("porbe", "period"), ("porbe", "tiemout"), ("porbe", "timout"),
    ]  # fmt: skip
    both = {"name": "a", "probe": {}, "porbe": {"period": 0}}
    assert [at for at, _ in faults(both)] == [("porbe",)]


def test_a_rule_is_asked_once_its_keys_are_whole() -> None:
    order = (("probe", "timeout"), "invalid_spec")
    assert faults({"name": 1, "probe": {"timeout": 30}}) == [(("name",), "invalid_spec"), order]
    assert faults({"name": "a", "probe": {"timeout": 30, "period": "x"}}) == [
        (("probe", "period"), "invalid_spec")
    ]
    assert faults({"name": "a", "others": {"b": {"timeout": 30}}}) == [
        (("others", "b", "timeout"), "invalid_spec")
    ]


def test_what_is_no_mapping_is_told_at_its_place() -> None:
    assert faults([1]) == [((), "invalid_spec")]
    assert faults({"name": "a", "probe": 3}) == [(("probe",), "invalid_spec")]


def test_an_expression_that_nothing_resolves_is_a_fault_beside_others() -> None:
    document = {"name": "${{inputs.x}}", "is_public": 3}
    assert faults(document) == [(("name",), "invalid_spec"), (("is_public",), "invalid_spec")]


def test_faults_of_faults_are_one_list_in_an_answer() -> None:
    probe = {"period": 0, "timeout": 0}
    with pytest.raises(InvalidSpec) as raised:
        Server.read({"name": 1, "others": {"b": probe, "a": probe}, "kind": "huge"})
    errors = raised.value.to_json()["error"]
    assert [error["at"] for error in (errors, *errors["others"])] == [
        ["name"],
        *(["others", name, key] for name in "ba" for key in ("period", "timeout")),
        ["kind"],
    ]
    assert all("others" not in error for error in errors["others"])


def test_of_many_faults_the_first_are_told() -> None:
    document = {"name": "a", **{f"key-{number}": number for number in range(100_000)}}
    assert [at for at, _ in faults(document)] == [(f"key-{number}",) for number in range(20)]


def test_pages_and_schemas_come_from_the_declaration() -> None:
    assert "| `period` | honoured | seconds between two; default 10 |" in list(table("x", Probe))
    assert [row.path for row in walk(Server) if row.support == "refused"] == ["kind", "network"]
    assert "others.*.period" in [row.path for row in walk(Server)]
    schema = Server.as_json_schema()
    assert schema["properties"]["kind"] == {"enum": ["small"]}
    assert schema["properties"]["probe"]["properties"]["period"]["maximum"] == 60
    assert schema["properties"]["others"]["additionalProperties"]["type"] == "object"
