"""Fields of documents: what is said of a wrong one, and where."""

from __future__ import annotations

import pytest

from torchyard.base import fields
from torchyard.base.errors import InvalidInput, InvalidSpec


def test_only_a_mapping_is_a_document() -> None:
    assert fields.mapping({"name": "a"}, "the document") == {"name": "a"}
    documents: tuple[object, ...] = ([], "text", None, 3)
    for wrong in documents:
        with pytest.raises(InvalidSpec, match="the document is not a mapping") as error:
            fields.mapping(wrong, "the document")
        assert error.value.hint


def test_the_name_in_the_path_is_the_documents() -> None:
    assert fields.with_path_name({}, "a") == {"name": "a"}
    assert fields.with_path_name({"name": "a"}, "a") == {"name": "a"}
    with pytest.raises(
        InvalidSpec, match="the document's name is `b`, but the URL says `a`"
    ) as error:
        fields.with_path_name({"name": "b"}, "a")
    assert error.value.at == ("name",)


def test_an_unknown_key_is_told_with_the_nearest() -> None:
    fields.refuse_unknown({"$schema": "x", "size": 1}, ("$schema", "size"))
    with pytest.raises(InvalidSpec, match="unknown key `sise`") as error:
        fields.refuse_unknown({"sise": 1}, ("$schema", "size"))
    assert error.value.hint == "did you mean `size`?" and error.value.at == ("sise",)
    far = fields.unknown_key("qqq", ("$schema", "size"), ("a", 0), inside="a")
    assert far.message == "unknown key `qqq` in `a`" and far.hint == "known keys: size"
    assert far.at == ("a", 0, "qqq")
    assert fields.unknown_key("qqq", ("size",), otherwise="look").hint == "look"


def test_texts() -> None:
    assert fields.text({"a": "b"}, "a") == "b"
    assert fields.text({"a": None}, "a") == fields.text({}, "a") == ""
    with pytest.raises(InvalidSpec, match="`a` must be text"):
        fields.text({"a": 1}, "a")
    assert fields.texts({"tags": {"n": 1}}, "tags") == {"n": "1"}
    assert fields.texts({"tags": None}, "tags") == fields.texts({}, "tags") == {}
    with pytest.raises(InvalidSpec, match="`tags` must be a mapping of texts"):
        fields.texts({"tags": ["n"]}, "tags")


def test_archived() -> None:
    assert [fields.archived(word) for word in ("", "false", "TRUE", "only")] == [
        False,
        False,
        None,
        True,
    ]
    with pytest.raises(InvalidInput, match="`archived` is `maybe`"):
        fields.archived("maybe")


def test_texts_take_numbers_and_refuse_what_is_nested() -> None:
    assert fields.texts({"tags": {"a": 1, "b": True, "c": "x"}}, "tags") == {
        "a": "1",
        "b": "true",
        "c": "x",
    }
    nested: tuple[object, ...] = ({"a": ["x"]}, {"a": None}, ["a"])
    for tags in nested:
        with pytest.raises(InvalidSpec) as error:
            fields.texts({"tags": tags}, "tags", ("inputs",))
        assert error.value.at[:2] == ("inputs", "tags") and error.value.hint


@pytest.mark.parametrize("value", [-1, 1.5, True, "4", float("inf")])
def test_a_count_is_a_whole_number_of_at_least_its_least(value: object) -> None:
    assert fields.count({"nodes": 4.0}, "nodes", default=1) == 4
    assert fields.count({"nodes": None}, "nodes", default=1) == 1
    with pytest.raises(InvalidSpec, match="whole number of 0 or more"):
        fields.count({"nodes": value}, "nodes", default=1)
