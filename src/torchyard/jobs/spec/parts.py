"""What the parts of a job file have in common.

Owns: the hint for an unknown key: the nearest one, the part that a key of that name belongs to, or
what another system's key is called here; the grammar of names.
Leaves: the keys to the model of each part.
Always: an error says where by `at`, and gives the nearest right word when there is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torchyard.base.documents import models, pages
from torchyard.base.documents.checks import At, By, Refused, plain
from torchyard.base.documents.models import Document
from torchyard.base.errors import InvalidSpec, nearest
from torchyard.base.fields import described, text

NAME = re.compile(r"^[a-zA-Z0-9][\w-]{0,254}\Z", re.ASCII)
_EXPERIMENT = re.compile(r"^[a-zA-Z0-9](?:[\w -]{0,253}[\w-])?\Z", re.ASCII)
READ_ONLY = Refused("only the server writes it: remove it")
_NODES = "write `resources: {instance_count: 2}`"
_GPUS = "GPUs come with the size of the `compute`: see `yard compute list-sizes`"
# What most others call what is served here.
_OTHER_NAMES = {
    ("", "nodes"): _NODES,
    ("distribution", "nodes"): _NODES,
    ("resources", "nodes"): "write `instance_count`",
    ("", "gpus"): _GPUS,
    ("resources", "gpus"): _GPUS,
    ("inputs.*", "local_path"): "write `path: azureml:NAME:VERSION`, a URL or a local path",
}


class JobPart(Document):
    """A mapping of a job file."""

    path_in_file: ClassVar[str] = ""
    """Dots between keys, `*` for a name that people give."""
    whole_file: ClassVar[type[Document]] = Document
    """The model of the job file; job_spec.py, which declares it, sets this."""

    @classmethod
    def unknown_key(cls, key: str, at: At, body: Mapping[str, Any]) -> InvalidSpec:
        hint, meant = cls._hint(key, at, body)
        under = f" under `{'.'.join(map(str, at))}`" if at else ""
        error = InvalidSpec(f"unknown key `{key[:80]}`{under}", hint, at=(*at, key))
        error.meant_key, error.is_of_key = meant, True
        return error

    @classmethod
    def _hint(cls, key: str, at: At, body: Mapping[str, Any]) -> tuple[str, str]:
        """The hint, and the key of this part that it says was meant."""
        path, known = cls.path_in_file, models.keys(cls)
        # What changes nothing is not what somebody meant.
        honoured = [name for name, each in known.items() if each.support == "honoured"]
        guess = nearest(key, honoured)
        inputs = body.get("inputs")
        near_input = nearest(key, list(map(str, inputs))) if isinstance(inputs, Mapping) else ""
        homes = _homes(cls.whole_file, key, path)
        if (path, key) in _OTHER_NAMES:
            return _OTHER_NAMES[path, key], ""
        if isinstance(inputs, Mapping) and key in inputs:
            return f"did you mean `inputs.{key}`?", ""
        if guess and plain(guess) in (plain(key), f"{plain(key)}s"):
            return f"did you mean `{guess}`?", guess
        if path and key in models.keys(cls.whole_file):
            return f"`{key}` belongs at the top of the job file, not under `{at[0]}`", ""
        if homes:
            return f"it belongs under `{homes[0].replace('*', '<name>')}`", ""
        if guess:
            return f"did you mean `{guess}`?", guess
        if not path and near_input:
            return f"did you mean `inputs.{near_input}`?", ""
        shown = sorted(
            name for name, each in known.items() if each.note != READ_ONLY.note and name[0] != "$"
        )
        return f"known keys: {', '.join(shown)}; see docs/reference/job-file.md", ""


def part(model: type[JobPart]) -> By:
    """The part of a job file that has this model; what is empty is absent."""
    return By(lambda value, at: model.read(value or {}, at), of=model)


def _homes(model: type[Document], key: str, path: str) -> list[str]:
    """Where a key of that name does something, but for `path`."""
    rows = (row for row in pages.walk(model) if row.name == key and row.support == "honoured")
    return list(dict.fromkeys(row.parent for row in rows if row.parent not in ("", path)))


def mapping(value: Any, at: At, subject: str, example: str = "{KEY: value}") -> Mapping[Any, Any]:
    """The value; empty where it says nothing.

    Raises:
        InvalidSpec: it is not a mapping.
    """
    if value and not isinstance(value, Mapping):
        raise InvalidSpec(
            f"{subject} must be a mapping of keys to values, not {described(value)}",
            f"for example `{at[-1]}: {example}`",
            at=at,
        )
    return value or {}


def name(body: Mapping[Any, Any], key: str, at: At = ()) -> str:
    """
    Raises:
        InvalidSpec: it can't be part of a URL.
    """
    value = text(body, key, at)
    if value and not NAME.match(value):
        raise InvalidSpec(
            f"`{value[:80]}` is not a valid `{key}`",
            "up to 255 letters, digits, `_` and `-`, beginning with a letter or digit",
            at=(*at, key),
        )
    return value


def experiment_name(body: Mapping[Any, Any]) -> str:
    """As a name, but with spaces: those of MLflow and of Azure's own examples have them."""
    value = text(body, "experiment_name", ())
    if value and not _EXPERIMENT.match(value):
        raise InvalidSpec(
            f"`{value[:80]}` is not a valid `experiment_name`",
            "up to 255 letters, digits, `_`, `-` and spaces, beginning with a letter or digit",
            at=("experiment_name",),
        )
    return value
