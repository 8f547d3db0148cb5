"""What the documents of data, models and environments have in common.

Owns: names, paths and versions, and what to say when one is wrong.
Leaves: every other key to who reads the document, with base/fields.py.
Always: a name that is taken here can be written in a reference, `azureml:name:version`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.refs import NAME_PATTERN

_VERSION = re.compile(r"[a-zA-Z0-9][\w.-]{0,63}", re.ASCII)


def name_of(document: Mapping[str, Any], noun: str, thing: str) -> str:
    """
    Args:
        noun: as in `no name for data`.
        thing: as in `the data asset has no name`.

    Raises:
        InvalidSpec: there is none, or it can't be written in a reference.
    """
    name = document.get("name")
    if not isinstance(name, str) or not NAME_PATTERN.match(name):
        raise InvalidSpec(
            f"`{name}` is no name for {noun}" if name else f"the {thing} has no `name`",
            "letters, digits, `_`, `-` and `.`, beginning with a letter or digit",
            at=["name"],
        )
    return name


def path_of(document: Mapping[str, Any], thing: str, hint: str) -> str:
    """
    Raises:
        InvalidSpec: there is none.
    """
    path = document.get("path")
    if not isinstance(path, str) or not path:
        raise InvalidSpec(f"the {thing} has no `path`", hint, at=["path"])
    return path


def version_of(document: Mapping[str, Any]) -> str:
    """Empty when the document names none.

    Raises:
        InvalidSpec: it can't be one.
    """
    version = document.get("version")
    if version is None:
        return ""
    if not _VERSION.fullmatch(str(version)):
        raise InvalidSpec(
            f"`{version}` is no version", "up to 64 letters, digits, `.`, `-`", at=["version"]
        )
    return str(version)
