"""Words of a fixed set, as sweep files write them.

Owns: matching a word in any case, with `_` or `-`, or in camelCase.
Leaves: which words there are to those who ask.
Always: an error gives the nearest right word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.base.errors import InvalidSpec, nearest
from torchyard.base.fields import described, unknown_key


def plain(word: str) -> str:
    return word[:80].replace("_", "").replace("-", "").replace(" ", "").lower()


def one_of(
    body: Mapping[Any, Any], key: str, words: Sequence[str], at: tuple[str | int, ...]
) -> str:
    """
    Raises:
        InvalidSpec: the key is absent, or its value is none of the words.
    """
    written = body.get(key)
    if isinstance(written, str):
        for word in words:
            if plain(word) == plain(written):
                return word
    if written is None and "spec" in body:
        raise unknown_key("spec", (key,), at)
    guess = nearest(written, words) if isinstance(written, str) else ""
    raise InvalidSpec(
        f"`{key}` is missing"
        if written is None
        else f"{described(written)} is not a valid `{key}`",
        f"did you mean `{guess}`?" if guess else f"use one of: {', '.join(words)}",
        at=at if written is None else (*at, key),
    )
