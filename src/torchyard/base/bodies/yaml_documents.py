"""YAML that a request brings.

Owns: reading it, up to a length, a depth and a number of values.
Leaves: what the document means to the packages; files of people to documents/yaml_files.py.
Always: values that aliases repeat count as often as they are repeated, so that a short text
can't stand for a document of gigabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import InvalidInput
from torchyard.base.fields import bounded

if TYPE_CHECKING:
    from yaml.nodes import Node

_LONGEST = 256 << 10
_MAX_DEPTH = 50
_MOST_VALUES = 50_000


def load(text: str, subject: str, at: Sequence[str | int] = ()) -> Any:
    """The document of a text.

    Args:
        subject: as in `the conda file is not YAML`.

    Raises:
        InvalidInput: it is not YAML, too long, nested too deeply, or has too many values.
    """
    import yaml

    bounded(text, _LONGEST, subject, at)
    try:
        _check_depth(text, subject, at)
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _values(node) > _MOST_VALUES:
                raise InvalidInput(
                    f"{subject} has more than {_MOST_VALUES} values, counting those that aliases "
                    "repeat",
                    "write a shorter document",
                    at=at,
                )
            return loader.construct_document(node)
        finally:
            loader.dispose()
    # Dates and numbers that do not exist raise what Python's own types raise.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(f"{subject} is not YAML: {reason:.300}", at=at) from error


def _check_depth(text: str, subject: str, at: Sequence[str | int]) -> None:
    """
    Raises:
        InvalidInput: values lie more than `_MAX_DEPTH` deep in others.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise InvalidInput(
                f"{subject} is nested more than {_MAX_DEPTH} deep", "write it flatter", at=at
            )


def _values(node: Node, counts: dict[int, int] | None = None) -> int:
    """How many values a node stands for.

    Raises:
        ValueError: it contains itself.
    """
    counts = {} if counts is None else counts
    count = counts.get(id(node), 0)
    if count < 0:
        raise ValueError("a value contains itself")
    if count:
        return count
    counts[id(node)] = -1
    count = 1
    if isinstance(node.value, list):
        for item in node.value:
            for child in item if isinstance(item, tuple) else (item,):
                count += _values(child, counts)
    counts[id(node)] = count
    return count
