"""References: how a document names an asset.

Owns: the forms `name`, `name:version`, `name@label`, each with or without `azureml:`, and the
registry form `azureml://registries/<registry>/<kind>/<name>/versions|labels/<v>`.
Leaves: what a name stands for to the asset's package.
Always: a reference read and written again is the same text but for the registry form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchyard.base.errors import InvalidInput

NAME_PATTERN = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}\Z")
_WHICH_PATTERN = re.compile(r"^[^\s\x00-\x1f]*\Z")
_REGISTRY = re.compile(
    r"^azureml://registries/(?P<registry>[^/\s]+)/[a-z]+/(?P<name>[^/\s]+)"
    r"(?:/(?P<how>versions|labels)/(?P<which>[^/\s]+))?\Z"
)


@dataclass(frozen=True)
class Ref:
    """A named asset; at most one of `version` and `label` is set."""

    name: str
    version: str = ""
    label: str = ""
    registry: str = ""

    def __str__(self) -> str:
        if self.version:
            return f"{self.name}:{self.version}"
        return f"{self.name}@{self.label}" if self.label else self.name


def parse(text: str) -> Ref:
    """Read a reference.

    Raises:
        InvalidInput: no name, or both a version and a label.
    """
    registry = _REGISTRY.match(text)
    if registry:
        which = registry["which"] or ""
        by_label = registry["how"] == "labels"
        return Ref(
            registry["name"],
            version="" if by_label else which,
            label=which if by_label else "",
            registry=registry["registry"],
        )
    plain = text.removeprefix("azureml:")
    name, _, label = plain.partition("@")
    name, _, version = name.partition(":")
    is_valid = NAME_PATTERN.match(name) and _WHICH_PATTERN.match(version + label)
    if not is_valid or (version and label):
        raise InvalidInput(
            f"`{text}` is not a reference to an asset",
            "write `name:version`, `name@latest` or `azureml:name:version`",
        )
    return Ref(name, version, label)
