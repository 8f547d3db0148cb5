"""What the documentation says of a model: the tables of its keys.

Owns: the order and form of the tables.
Leaves: the declarations to models.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torchyard.base.documents.checks import Choice, Support
from torchyard.base.documents.models import Document, check_of, inner_of, key_of


class Declared(NamedTuple):
    """A key of a model or of one within it, or one value of a key that has a fixed set of them.

    `path` has dots between keys, and `*` for a name that people give.
    """

    path: str
    support: Support
    note: str
    value: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def parent(self) -> str:
        return self.path.rpartition(".")[0]


def walk(model: type[Document], start: str = "") -> Iterator[Declared]:
    """Each key of a model and of those in it; one of a `Choice` by its values."""
    for name, field in model.model_fields.items():
        path = f"{start}{field.alias or name}"
        inner, is_named = inner_of(field)
        choice = check_of(field)
        if is_named:
            path = f"{path}.*"
        key = key_of(field)
        if isinstance(choice, Choice):
            for value, each in choice.values.items():
                yield Declared(path, each.support, each.note, value)
        elif inner is None or key.note:
            yield Declared(path, key.support, key.note)
        if inner is not None:
            yield from walk(inner, f"{path}.")


def table(title: str, model: type[Document]) -> Iterator[str]:
    """The section of a reference page: a line for each key, in Markdown."""
    yield from ("", f"## {title}", "", "| key | support | |", "|---|---|---|")
    for name, field in model.model_fields.items():
        key = key_of(field)
        default = field.default
        is_shown = isinstance(default, int | float) and not isinstance(default, bool)
        note = "; ".join(filter(None, (key.note, f"default {default}" if is_shown else "")))
        yield f"| `{field.alias or name}` | {key.support} | {note} |"
