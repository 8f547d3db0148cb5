"""What the documents of data, models, environments and components have in common.

Owns: reading and checking names, paths and versions.
Leaves: every other key to the model of each document.
Always: an accepted name can be written in a reference, `azureml:name:version`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from torchyard.base.documents.models import At, By, File, Key, Texts, rule
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


def name_of(document: Mapping[str, Any], noun: str, thing: str) -> str:
    """As `check_name`, of a document's `name`."""
    return check_name(document.get("name"), noun, thing)


def version_of(document: Mapping[str, Any]) -> str:
    """Empty when the document names none.

    Raises:
        InvalidSpec: it is not a valid version.
    """
    version = document.get("version")
    return "" if version is None else _version(version, ("version",))


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

    name: Annotated[Any, Key("letters, digits, `_`, `-` and `.`")] = None
    version: Annotated[Any, By(_version), Key("the next one when left out")] = ""
    description: Annotated[str, By(as_text), Key()] = ""
    tags: Annotated[dict[str, str], Texts(), Key("texts and numbers")] = Field(default_factory=dict)
    properties: Annotated[dict[str, str], Texts(), Key("texts and numbers")] = Field(
        default_factory=dict
    )

    @rule("name")
    def _name(self) -> None:
        check_name(self.name, self.noun, self.thing)
