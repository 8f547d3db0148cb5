"""Hints for keys of earlier versions of Azure's schema."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base import fields
from torchyard.base.errors import InvalidSpec

DATA = ("name", "type", "path", "datastore")
COMPUTE = ("name", "size", "tier", "min_instances", "max_instances")
ENDPOINT = ("name", "auth_mode", "traffic")
DEPLOYMENT = ("name", "code_configuration", "scale_settings", "settings", "output_action")
DATASTORE = ("name", "type", "credentials", "account_name")


@pytest.mark.parametrize(
    ("key", "keys", "hint"),
    [
        ("dataset_type", DATA, "did you mean `type`?"),
        ("local_path", DATA, "did you mean `path`?"),
        ("vm_priority", COMPUTE, "did you mean `tier`?"),
        ("scale_settings", COMPUTE, "write `min_instances`, `max_instances` and"),
        ("deployments", ENDPOINT, "`yard online-deployment create -f FILE`"),
        ("output_configuration", DEPLOYMENT, "write `settings: {output_action: append_row"),
        ("azure_blob", DATASTORE, "write its keys beside `type`"),
        # Other files have no such key.
        ("azure_blob", DATA, "known keys: name, type"),
        ("scale_setting", DEPLOYMENT, "did you mean `scale_settings`?"),
    ],
)
def test_what_takes_the_place_of_an_old_key(key: str, keys: tuple[str, ...], hint: str) -> None:
    assert hint in fields.unknown_key(key, keys).hint


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ({"local_path": "./src"}, "write `code: ./src`"),
        ({"other": 1}, "write `code: …` with a text"),
        (3, "put it in quotes: `code: '3'`"),
    ],
)
def test_what_to_write_for_a_mapping_that_is_text_today(value: Any, hint: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        fields.text({"code": value}, "code")
    assert caught.value.hint == hint
