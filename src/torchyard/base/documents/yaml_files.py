"""YAML files of people: documents, and the files that documents name.

Owns: YAML as plain values with the line and column of each key; errors with their place.
Leaves: what the values mean to the server; what is a string to strings.py; YAML that a request
brings to bodies/yaml_documents.py.
Always: the result is a finite tree of mappings with string keys, lists, strings, numbers, booleans
and nulls; anything else is an error that names file, line and column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from torchyard.base.documents.strings import At, is_string
from torchyard.base.errors import InvalidInput, InvalidSpec, TorchyardError

LIMIT_BYTES = 1 << 20
_LIMIT_VALUES = 100_000
_LIMIT_DEPTH = 100
_FLATTER = f"use fewer than {_LIMIT_DEPTH} levels"
_MERGE = "tag:yaml.org,2002:merge"
_TAG = "tag:yaml.org,2002:"
# Of a template, such as `{{ENDPOINT_NAME}}`.
_PLACEHOLDER = re.compile(r"\{\{ ?[\w.-]{1,100} ?\}\}")
_BASE_60 = re.compile(r"^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?\Z")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class YamlFile:
    """`places` has the position of each key and list item: `job.yml:7:3`."""

    value: dict[str, Any]
    places: dict[At, str] = field(default_factory=dict)

    def position_of(self, at: At) -> str:
        """The position of `at`, or of the nearest value around it that exists."""
        while at not in self.places and at:
            at = at[:-1]
        return self.places[at]


def read(path: Path, name: str) -> YamlFile:
    """Read a file whose top level is a mapping.

    Args:
        name: what messages call it.

    Raises:
        InvalidInput: the file can't be read.
        InvalidSpec: the file is not valid; the message begins with the position.
    """
    return parse(_text(path, name), name)


def parse(text: str, name: str) -> YamlFile:
    """Read the text of such a file.

    Raises:
        InvalidSpec: it is not valid; the message begins with the position.
    """
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise _syntax_error(name, text, error) from error
    except RecursionError as error:
        raise InvalidSpec(f"{name}:1:1: the document is nested too deeply", _FLATTER) from error
    if node is None:
        raise InvalidSpec(f"{name}:1:1: the file is empty", "write the document into it")
    if not isinstance(node, MappingNode):
        raise InvalidSpec(
            f"{_mark(name, node)}: the document is not a mapping",
            "write `key: value` lines, as in `command: python train.py`",
        )
    reading = _Reading(name)
    value = reading.value(node, ())
    assert isinstance(value, dict)
    return YamlFile(value, reading.places)


def value_or_text(text: str, at: At, type_around: str) -> Any:
    """What the text of a command line means as YAML; the text itself where that is nothing.

    Args:
        at: where the value is to stand in a document.
        type_around: the `type` of the mapping around it.
    """
    try:
        node = yaml.compose(text, Loader=_Loader)
        return text if node is None else _Reading("--set").value(node, at, type_around)
    except (yaml.YAMLError, TorchyardError, RecursionError):
        return text


def _text(path: Path, name: str) -> str:
    try:
        if path.is_dir():
            raise InvalidInput(f"`{name}` is a folder", "name the YAML file in it")
        with open(path, "rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise InvalidInput(
            f"the file `{name}` does not exist", "check the path given with `--file`"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            f"the file `{name}` can't be read ({reason})", "check the path and its permissions"
        ) from error
    if len(content) > LIMIT_BYTES:
        raise InvalidSpec(
            f"{name}:1:1: the file is larger than {LIMIT_BYTES >> 20} MB",
            "name the YAML file, not the files it describes",
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        raise InvalidSpec(
            f"{name}:{line}:{column}: the file is not text in UTF-8",
            "name a YAML file, and save it as UTF-8",
        ) from error
    for match in re.finditer("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text):
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - (text.rfind("\n", 0, match.start()) + 1) + 1
        raise InvalidSpec(
            f"{name}:{line}:{column}: the file holds the control character U+{ord(match[0]):04X}",
            "name a YAML file, not a binary one",
        )
    return text


def _syntax_error(name: str, text: str, error: yaml.YAMLError) -> InvalidSpec:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or error).strip()
    if mark is None:
        return InvalidSpec(f"{name}:1:1: {problem}", "correct the YAML at this place")
    # libyaml's second half of a sentence; the first half is about an earlier position.
    problem = problem.removeprefix("but ")
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        column = indent.index("\t") + 1
        return InvalidSpec(
            f"{name}:{mark.line + 1}:{column}: a tab can't indent YAML", "indent with spaces"
        )
    hint = "correct the YAML at this place"
    placeholder = _PLACEHOLDER.search(line)
    if placeholder:
        hint = f"replace the placeholder `{placeholder[0]}`"
    elif "mapping values are not allowed" in problem:
        hint = "put a text that holds `: ` in quotes, and check the indentation"
    elif "undefined alias" in problem or "alphabetic or numeric" in problem:
        hint = "define the anchor `&name` first, or put a text that begins with `*` in quotes"
    elif "cannot start any token" in problem:
        hint = "put a text that begins with this character in quotes"
    elif "another document" in problem:
        hint = "keep one document per file: nothing after a `---` line"
    return InvalidSpec(f"{name}:{mark.line + 1}:{mark.column + 1}: {problem}", hint)


class _Reading:
    """Turn nodes into values, and count them: aliases can expand to a great many."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._scalars = SafeConstructor()
        self._count = 0
        self._open: list[Node] = []
        self.places: dict[At, str] = {}

    def value(self, node: Node, at: At, type_around: str = "") -> Any:
        self._count_value(node)
        self.places.setdefault(at, _mark(self._name, node))
        if isinstance(node, ScalarNode):
            return self._scalar(node, is_string(at, type_around))
        self._enter(node)
        try:
            if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
                return [
                    self.value(item, (*at, n), type_around) for n, item in enumerate(node.value)
                ]
            if isinstance(node, MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, at)
        finally:
            self._open.pop()
        raise self._wrong(node, f"the tag `{node.tag}` is not supported", "remove the tag")

    def _count_value(self, node: Node) -> None:
        self._count += 1
        if self._count > _LIMIT_VALUES:
            raise self._wrong(
                node, "the document's aliases expand to too many values", "write it without aliases"
            )

    def _enter(self, node: Node) -> None:
        if any(outer is node for outer in self._open):
            raise self._wrong(
                node, "an alias refers to a value that contains it", "write it without the alias"
            )
        if len(self._open) > _LIMIT_DEPTH:
            raise self._wrong(node, "the document is nested too deeply", _FLATTER)
        self._open.append(node)

    def _mapping(self, node: MappingNode, at: At) -> dict[str, Any]:
        pairs = {key.value: (key, value) for key, value in self._pairs(node)}
        written = pairs["type"][1] if "type" in pairs else None
        kind = written.value if isinstance(written, ScalarNode) else ""
        mapping: dict[str, Any] = {}
        for key, (key_node, value_node) in pairs.items():
            self.places[(*at, key)] = _mark(self._name, key_node)
            mapping[key] = self.value(value_node, (*at, key), kind)
        return mapping

    def _pairs(self, node: MappingNode) -> Iterator[tuple[ScalarNode, Node]]:
        """Keys and values of a mapping, with those that are merged into it by `<<`."""
        first: dict[str, Node] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                many = isinstance(value_node, SequenceNode)
                merged += value_node.value if many else [value_node]
                continue
            if not isinstance(key_node, ScalarNode):
                raise self._wrong(key_node, *_no_key(key_node))
            key = key_node.value
            if key in first:
                raise self._wrong(
                    key_node,
                    f"duplicate key `{key}`, first used on line {first[key].start_mark.line + 1}",
                    "keep one of the two",
                )
            first[key] = key_node
            yield key_node, value_node
        for source in merged:
            if not isinstance(source, MappingNode):
                raise self._wrong(source, "`<<` takes a mapping", "write `<<: *name`")
            self._count_value(source)
            self._enter(source)
            for key_node, value_node in self._pairs(source):
                if key_node.value not in first:
                    first[key_node.value] = key_node
                    yield key_node, value_node
            self._open.pop()

    def _scalar(self, node: ScalarNode, is_text: bool) -> Any:
        text = node.value
        kind = node.tag.removeprefix(_TAG)
        # Times stay as written, as does 22:30, which YAML 1.1 reads as a base-60 number.
        if kind in ("str", "timestamp", "value") or _BASE_60.match(text):
            return text
        if kind not in ("null", "bool", "int", "float"):
            raise self._wrong(node, f"the tag `{node.tag}` is not supported", "remove the tag")
        if is_text and kind != "null":
            return text
        try:
            value = self._scalars.construct_object(node)
        except (ValueError, yaml.YAMLError) as error:
            raise self._wrong(
                node, f"`{text}` is not a valid {kind}", "put it in quotes"
            ) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise self._wrong(node, f"`{text}` is not a finite number", "put it in quotes")
        if isinstance(value, int) and abs(value) >> 63:
            raise self._wrong(node, f"the number `{text[:30]}` is too large", "put it in quotes")
        return value

    def _wrong(self, node: Node, problem: str, hint: str) -> InvalidSpec:
        return InvalidSpec(f"{_mark(self._name, node)}: {problem}", hint)


def _no_key(node: Node) -> tuple[str, str]:
    """Problem and hint of a key that is a list or a mapping, as `{{NAME}}` is one."""
    pairs = node.value if isinstance(node, MappingNode) else []
    if len(pairs) == 1 and isinstance(pairs[0][0], ScalarNode):
        name = pairs[0][0].value[:80]
        return f"`{{{{{name}}}}}` is a placeholder", "replace it by its value"
    return "a key is not a string", "write `key: value`"


def _mark(name: str, node: Node) -> str:
    return f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
