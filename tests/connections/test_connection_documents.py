"""What a connection's document may say, and what is said of one that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.connections import documents
from torchyard.connections.types import CATEGORIES, CREDENTIALS

SECRET = "s3cretive"


def read(**changes: Any) -> documents.ConnectionFile:
    return documents.read({"category": "Git", "target": "https://git.example.org", **changes})


@pytest.mark.parametrize("name", ["abc", "my_s3-connection", "A" * 33])
def test_names_that_azure_takes(name: str) -> None:
    assert documents.checked_name(name) == name


@pytest.mark.parametrize("name", ["", "ab", "-abc", "a b c", "a/bc", "ab\n", "é" * 4, "A" * 34])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="is not a valid name of a connection"):
        documents.checked_name(name)


@pytest.mark.parametrize(
    ("written", "category"),
    [("PythonFeed", "PythonFeed"), ("azure_my_sql_db", "AzureMySqlDb"), ("adlsgen2", "ADLSGen2")],
)
def test_a_category_is_found_in_any_spelling(written: str, category: str) -> None:
    assert read(category=written).category == category


def test_every_category_has_a_spelling_of_its_own() -> None:
    assert len({name.lower() for name in CATEGORIES}) == len(CATEGORIES)
    assert all(read(category=name).category == name for name in CATEGORIES)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"category": "Snowflaek"}, "did you mean `Snowflake`?"),
        ({"category": ""}, "`category` is missing"),
        ({"category": 3}, "`category` must be text"),
    ],
)
def test_another_category_is_refused(document: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        read(**document)
    assert words in f"{refusal.value.message} {refusal.value.hint}"
    assert refusal.value.at == ("category",)


@pytest.mark.parametrize("auth_type", CREDENTIALS)
def test_each_way_to_authenticate_takes_its_own_keys(auth_type: str) -> None:
    required, optional = CREDENTIALS[auth_type]
    keys = [*required, *optional]
    values: dict[str, Any] = {
        key: {"a": SECRET} if key == "keys" else f"{SECRET}-{key}" for key in keys
    }
    assert read(authType=auth_type.upper(), credentials=values).secrets() == values
    assert read(authType=auth_type.upper()).authType == auth_type
    for key in required:
        without = {**{other: values[other] for other in keys if other != key}, "unknown": None}
        if any(without.values()):
            with pytest.raises(InvalidSpec, match=f"have no `{key}`"):
                read(authType=auth_type, credentials=without)


@pytest.mark.parametrize(
    ("auth_type", "credentials", "words"),
    [
        ("PAT", {"pta": SECRET}, "did you mean `pat`?"),
        ("None", {"pat": SECRET}, "unknown key `pat` in `credentials of None`"),
        ("PAT", {"pat": [SECRET]}, "must be a text of 1 to"),
        ("PAT", {"pat": SECRET * 1000}, "must be a text of 1 to"),
        ("PAT", [SECRET], "`credentials` is not a mapping"),
        ("CustomKeys", {"keys": [SECRET]}, "`credentials.keys` is not a mapping"),
        ("CustomKeys", {"keys": {"a": {"b": SECRET}}}, "must be a text of 1 to"),
        ("CustomKeys", {"keys": {f"k{n}": SECRET for n in range(65)}}, "the limit is 64"),
    ],
)
def test_wrong_credentials_are_refused_without_repeating_them(
    auth_type: str, credentials: Any, words: str
) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        read(authType=auth_type, credentials=credentials)
    answer = f"{refusal.value.message} {refusal.value.hint}"
    assert words in answer and SECRET not in answer


def test_a_target_is_one_line() -> None:
    target = "jdbc:snowflake://me.example.org/?db=a&warehouse=b"
    assert read(target=target, category="Snowflake").target == target
    assert read(target=None, category="OpenAI").target == ""
    for wrong in ("a\nb", "a\x00b", "a\ud800", "a" * 2049):
        with pytest.raises(InvalidSpec, match="one line"):
            read(target=wrong)
    with pytest.raises(InvalidSpec, match="kind `Git` has no `target`"):
        read(target=None)


def test_metadata_are_texts() -> None:
    assert read(metadata={"kind": "a", "n": 1}).metadata == {"kind": "a", "n": "1"}
    for wrong in (
        {"a": ["b"]},
        {"a": "b\n"},
        {"a\n": "b"},
        {f"k{n}": "" for n in range(65)},
        ["a"],
    ):
        with pytest.raises(InvalidSpec):
            read(metadata=wrong)
