"""Hints for keys that a document does not have, and for values that should be text."""

from __future__ import annotations

import pytest

from torchyard.base import fields
from torchyard.base.errors import InvalidSpec

DEPLOYMENT = ("name", "code_configuration", "scale_settings", "settings", "output_action")


def test_an_unknown_key_is_refused_with_the_nearest_or_all() -> None:
    assert fields.unknown_key("scale_setting", DEPLOYMENT).hint == "did you mean `scale_settings`?"
    assert fields.unknown_key("azure_blob", DEPLOYMENT).hint.startswith("known keys: name, code")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ({"local_path": "./src"}, "write `code: …` with a text"),
        (3, "put it in quotes: `code: '3'`"),
    ],
)
def test_what_to_write_for_a_value_that_is_no_text(value: object, hint: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        fields.text({"code": value}, "code")
    assert caught.value.hint == hint
