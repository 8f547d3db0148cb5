"""What the documents of data, models, environments and components have in common.

Owns: reading and checking names, paths and versions.
Leaves: every other key to the reader of each document, with base/fields.py.
Always: an accepted name can be written in a reference, `azureml:name:version`.
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
        noun: as in `not a valid name for data`.
        thing: as in `the data asset has no name`.

    Raises:
        InvalidSpec: the name is missing, or can't be written in a reference.
    """
    name = document.get("name")
    if not isinstance(name, str) or not NAME_PATTERN.match(name):
        raise InvalidSpec(
            f"`{name}` is not a valid name for {noun}" if name else f"the {thing} has no `name`",
            "use letters, digits, `_`, `-` and `.`, beginning with a letter or digit",
            at=["name"],
        )
    return name


def path_of(document: Mapping[str, Any], thing: str, hint: str) -> str:
    """
    Raises:
        InvalidSpec: the path is missing.
    """
    path = document.get("path")
    if not isinstance(path, str) or not path:
        raise InvalidSpec(f"the {thing} has no `path`", hint, at=["path"])
    return path


def version_of(document: Mapping[str, Any]) -> str:
    """Empty when the document names none.

    Raises:
        InvalidSpec: it is not a valid version.
    """
    version = document.get("version")
    if version is None:
        return ""
    if not _VERSION.fullmatch(str(version)):
        raise InvalidSpec(
            f"`{version}` is not a valid version",
            "use up to 64 letters, digits, `.`, `_` and `-`",
            at=["version"],
        )
    return str(version)
