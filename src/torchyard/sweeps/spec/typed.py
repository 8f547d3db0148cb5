"""Mappings that are read by their `type`: hyperparameters, sampling algorithms, policies.

Owns: finding the type, in any case, with `_` or `-`, or in camelCase.
Leaves: the types, and the keys of each, to the module that declares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.documents.checks import At, Choice, Key
from torchyard.base.documents.models import Document, declared
from torchyard.base.errors import InvalidSpec


class Typed(Document):
    type: Any = declared(None)


class Types(Choice):
    """The types that there are.

    Args:
        noun: what each is: `a policy`.
        files: for each its model and what it does.
        refused: others that people may write.
    """

    def __init__(
        self,
        noun: str,
        files: Mapping[str, tuple[type[Typed], str]],
        refused: Mapping[str, Key] | None = None,
    ) -> None:
        super().__init__(**{name: Key(note) for name, (_, note) in files.items()}, **refused or {})
        self.noun = noun
        self.files = {name: file for name, (file, _) in files.items()}

    def mapping_schema(self) -> dict[str, Any]:
        """A mapping of any of the types, as JSON Schema has it."""
        forms = []
        for name, file in self.files.items():
            form = file.as_json_schema()
            form["properties"]["type"] = {"enum": [name], "description": self.values[name].note}
            forms.append({**form, "required": ["type"]})
        return {"anyOf": forms}

    def read_mapping(self, body: Mapping[Any, Any], at: At) -> tuple[str, Any]:
        """The type of a mapping, and its keys as the model of that type.

        Raises:
            InvalidSpec: what is wrong, with its place.
        """
        if body.get("type") in (None, ""):
            raise InvalidSpec(
                f"`{at[-1]}` has no `type`", f"use one of: {', '.join(self.files)}", at=at
            )
        kind = self.read(body, "type", at, None)
        return kind, self.files[kind].read(body, at)
