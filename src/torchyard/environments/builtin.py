"""Environments that exist by name.

Owns: the built-in environments, and finding one by its reference.
Leaves: the forms of references to base/refs, inline definitions to definition.py.
Always: a name is found in any case, with or without `azureml:` and `AzureML-`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.base import refs
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound, nearest


@dataclass(frozen=True)
class BuiltIn:
    """An environment of the package's own; `python` empty means the platform's."""

    name: str
    description: str
    version: str = "1"
    python: str = ""
    requirements: tuple[str, ...] = field(default=())


BUILT_IN = (BuiltIn("python", "The platform's own Python with pip and nothing else"),)

_PREFIX = "azureml-"
_HINT = "name `python@latest`, or give `conda_file` or `pip_requirements`"


def find(reference: str, at: tuple[str | int, ...]) -> BuiltIn:
    """The environment that `reference` names; `at` is its place in the document.

    Raises:
        InvalidSpec: it is no reference at all.
        NotFound: no environment has that name or version.
    """
    try:
        ref = refs.parse(reference.strip())
    except InvalidInput as error:
        raise InvalidSpec(error.message, error.hint, at=at) from error
    bare = ref.name[len(_PREFIX) :] if ref.name.lower().startswith(_PREFIX) else ref.name
    for known in BUILT_IN:
        if known.name.lower() != bare.lower():
            continue
        if ref.version in ("", known.version) and ref.label.lower() in ("", "latest"):
            return known
        raise NotFound(
            f"environment `{reference}` does not exist: `{known.name}` has version "
            f"{known.version} and label `latest`",
            f"write `{known.name}@latest`",
            at=at,
        )
    guess = nearest(bare, [known.name for known in BUILT_IN])
    hint = f"did you mean `{guess}`? Otherwise {_HINT}" if guess else _HINT
    raise NotFound(f"environment `{reference}` does not exist", hint, at=at)
