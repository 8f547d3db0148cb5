"""Documents to read: those that tests and examples hold, and what becomes of them by a seed.

Owns: the kept inputs; mutations.
Leaves: collecting what tests read to capture.py.
Always: the same seed and number give the same documents, on any machine and Python.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

KEPT = Path(__file__).parent / "kept"
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, 2**31, "", "text", "true", "1", "PT10S", [], {}, ["text"],
    {"text": 1}, "a\0b", "${{inputs.x}}", "azureml:x:1",
)  # fmt: skip
_LONG = (300, 2_000, 70_000)
_MOST_CHANGES = 3


def kept(kind: str) -> list[Any]:
    """The documents of this kind, as Python writes them, one a line."""
    text = (KEPT / f"{kind.replace(' ', '_')}.txt").read_text(encoding="utf-8")
    return [ast.literal_eval(line) for line in text.splitlines()]


def mutated(kind: str, seed: int, count: int) -> Iterator[Any]:
    """Documents that differ from a kept one in one to three places."""
    documents = [document for document in kept(kind) if isinstance(document, dict)]
    random = Random(f"{kind} {seed}")
    words = sorted({str(key) for document in documents for key in _keys(document)})
    for _ in range(count):
        document = copy.deepcopy(random.choice(documents))
        for _ in range(random.randint(1, _MOST_CHANGES)):
            _change(document, random, words)
        yield document


def _keys(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from _keys(each)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each (container, key or position) of a document."""
    steps = list(value) if isinstance(value, dict) else range(len(value))
    for step in steps:
        yield value, step
        if isinstance(value[step], dict | list):
            yield from _places(value[step])


def _change(document: Any, random: Random, words: list[str]) -> None:
    places = list(_places(document))
    if not places:
        document[random.choice(words)] = random.choice(_ODD)
        return
    container, step = random.choice(places)
    value = container[step]
    kind = random.randrange(8)
    if kind == 0:
        del container[step]
    elif kind == 1 and isinstance(container, dict):
        del container[step]
        container[_misspelt(str(step), random)] = value
    elif kind == 2 and isinstance(container, dict):
        container[_misspelt(str(step), random)] = copy.deepcopy(value)
    elif kind == 3:
        mappings = [each for each, _ in places if isinstance(each, dict)]
        target = random.choice(mappings) if mappings else document
        moved = copy.deepcopy(value)
        del container[step]
        target[str(step)] = moved
    elif kind == 4 and isinstance(value, int | float) and not isinstance(value, bool):
        container[step] = value + random.choice((-1, 1))
    elif kind == 5 and isinstance(value, str):
        container[step] = (value or "x") * (random.choice(_LONG) // max(len(value), 1) + 1)
    elif kind == 6 and isinstance(container, dict):
        container[random.choice(words)] = copy.deepcopy(random.choice(_ODD))
    else:
        container[step] = copy.deepcopy(random.choice(_ODD))


def _misspelt(word: str, random: Random) -> str:
    position = random.randrange(len(word) + 1)
    return random.choice(
        (
            word[:position] + word[position + 1 :],
            word[:position] + random.choice("aeinst_") + word[position:],
            word.replace("_", "-"),
            word.title().replace("_", ""),
            word + "s",
        )
    )
