"""What the documents of data, models, environments and components have in common.

Owns: reading and checking names, paths and versions.
Leaves: every other key to the model of each document.
Always: an accepted name can be written in a reference, `azureml:name:version`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By, Texts
from torchyard.base.documents.models import File, declared, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.refs import NAME_PATTERN

_VERSION = re.compile(r"[a-zA-Z0-9][\w.-]{0,63}", re.ASCII)


def check_name(name: Any, noun: str, thing: str) -> str:
    """
    Args:
        noun: as in `not a valid name for data`.
        thing: as in `the data asset has no name`.

    Raises:
        InvalidSpec: the name is missing, or can't be written in a reference.
    """
    if not isinstance(name, str) or not NAME_PATTERN.match(name):
        raise InvalidSpec(
            f"`{name}` is not a valid name for {noun}" if name else f"the {thing} has no `name`",
            "use letters, digits, `_`, `-` and `.`, beginning with a letter or digit",
            at=["name"],
        )
    return name


def _version(value: Any, at: At) -> str:
    if not _VERSION.fullmatch(str(value)):
        raise InvalidSpec(
            f"`{value}` is not a valid version",
            "use up to 64 letters, digits, `.`, `_` and `-`",
            at=at,
        )
    return str(value)


def as_text(value: Any, at: At) -> str:
    """Whatever is written, as a text; null and the like are none."""
    return str(value or "")


class AssetFile(File):
    """What every asset has."""

    noun: ClassVar[str] = "data"
    thing: ClassVar[str] = "data asset"

    name: Any = declared(None, "letters, digits, `_`, `-` and `.`")
    version: Any = declared("", "the next one when left out", By(_version))
    description: str = declared("", check=By(as_text))
    tags: dict[str, str] = declared({}, "texts and numbers", Texts())
    properties: dict[str, str] = declared({}, "texts and numbers", Texts())

    @rule("name")
    def _name(self) -> None:
        check_name(self.name, self.noun, self.thing)
