"""Read YAML documents and remember the position of every value.

Owns: YAML as plain values with the line and column of each key, `--set`, errors with their place.
Leaves: what the values mean to the server.
Always: the result is a finite tree of mappings with string keys, lists, strings, numbers, booleans
and nulls; anything else is an error that names file, line and column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from torchyard.base import assignments
from torchyard.base.assignments import At
from torchyard.base.errors import InvalidInput, InvalidSpec, TorchyardError
from torchyard.base.fields import literal

LIMIT_BYTES = 1 << 20
_LIMIT_VALUES = 100_000
_LIMIT_DEPTH = 100
_FLATTER = f"use fewer than {_LIMIT_DEPTH} levels"
_MERGE = "tag:yaml.org,2002:merge"
_TAG = "tag:yaml.org,2002:"
# What Azure ML's schema calls a string stays as it is written: `yes`, `1e3`, `1.10`, `2024-01-02`.
# The values of these mappings,
_TEXTS = ("tags", "environment_variables", "properties")
# and of these keys, where they are not names that the user chose.
_TEXT_KEYS = ("name", "version", "display_name", "experiment_name", "description", "stage")
_USERS_NAMES = ("inputs", "outputs", "search_space")
# Of inputs of the type `string`.
_TEXT_OF_STRINGS = ("value", "default")
_ASSIGNMENT = re.compile(r"""((?:"[^"]*"|[^"=])*)(=)(.*)\Z""", re.DOTALL)
# Of a template, such as `{{ENDPOINT_NAME}}`.
_PLACEHOLDER = re.compile(r"\{\{ ?[\w.-]{1,100} ?\}\}")
_BASE_60 = re.compile(r"^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?\Z")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Document:
    """A parsed YAML file. `places` has the position of each key and list item: `job.yml:7:3`.

    `name` is empty if there is no file and options alone fill the document.
    """

    name: str
    folder: Path
    value: dict[str, Any]
    places: dict[At, str] = field(default_factory=dict)

    def place(self, at: Iterable[str | int]) -> str:
        """The position of `at`, or of the nearest value around it that exists."""
        steps = tuple(at)
        if len(steps) == 2 and steps[0] == "properties" and steps not in self.places:
            # It may stand in the mapping `torchyard`, which means the same.
            written = tuple(str(steps[1]).split("."))
            steps = written if written in self.places else steps
        while steps not in self.places and steps:
            steps = steps[:-1]
        return self.places.get(steps, self.name)

    def locate(self, error: TorchyardError) -> TorchyardError:
        """The same error, prefixed with its position if it has one in this document."""
        # Errors from the server are recognized by code, not by class.
        if not error.at and error.code != InvalidSpec.code:
            return error
        place = self.place(error.at)
        message = f"{place}: {error.message}" if place else error.message
        located = type(error)(message, error.hint, code=error.code, at=error.at)
        located.__cause__ = error
        return located

    def set(self, assignment: str) -> None:
        """Apply one `--set a.b[0]=value`; the value is parsed as YAML, else kept as a string.

        Tags and environment variables are texts, so `tags.kept=yes` is `yes`, not `true`.

        A name that contains dots or `=` needs double quotes: `a."b.c"=value`. Below `properties`
        and `tags`, whose values are never mappings, the rest is one name and needs no quotes.

        Raises:
            InvalidInput: it has no `=`, or a step of the path is neither mapping nor list.
        """
        match = _ASSIGNMENT.match(assignment)
        path, equals, text = match.groups() if match else (assignment, "", "")
        at = assignments.steps_of(path)
        if not equals or not at:
            raise InvalidInput(
                f"`--set {assignment}` is not an assignment", "write `--set a.b=value`"
            )
        value = _value_of(text)
        if _is_text(at) and isinstance(value, bool | int | float):
            value = value if literal(value) == text else text
        assignments.assign(self.value, at, value, f"--set {path}")
        for below in [place for place in self.places if place[: len(at)] == at]:
            del self.places[below]
        self.places[at] = f"--set {path}"

    def fill(self, options: Mapping[str, Any]) -> None:
        """Set the keys whose option is not None."""
        for key, value in options.items():
            if value is not None:
                self.value[key] = value
                self.places[(key,)] = f"--{key.replace('_', '-')}"


def empty(folder: Path) -> Document:
    """A document that only options fill; its paths are relative to `folder`."""
    return Document("", folder, {})


def read(file: str | Path) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises:
        InvalidInput: the file can't be read.
        InvalidSpec: the file is not valid; the message begins with the position.
    """
    path = Path(file)
    name = str(file)
    text = _text(path, name)
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
    return Document(name, path.absolute().parent, value, reading.places)


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

    def value(self, node: Node, at: At) -> Any:
        self._count += 1
        if self._count > _LIMIT_VALUES:
            raise self._wrong(
                node, "the document's aliases expand to too many values", "write it without aliases"
            )
        if any(outer is node for outer in self._open):
            raise self._wrong(
                node, "an alias refers to a value that contains it", "write it without the alias"
            )
        if len(self._open) > _LIMIT_DEPTH:
            raise self._wrong(node, "the document is nested too deeply", _FLATTER)
        self.places.setdefault(at, _mark(self._name, node))
        if isinstance(node, ScalarNode):
            return self._scalar(node, _is_text(at))
        self._open.append(node)
        try:
            if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
                return [self.value(item, (*at, n)) for n, item in enumerate(node.value)]
            if isinstance(node, MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, at)
        finally:
            self._open.pop()
        raise self._wrong(node, f"the tag `{node.tag}` is not supported", "remove the tag")

    def _mapping(self, node: MappingNode, at: At) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
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
            self.places[(*at, key)] = _mark(self._name, key_node)
            mapping[key] = self.value(value_node, (*at, key))
        if mapping.get("type") == "string":
            for key_node, value_node in node.value:
                if key_node.value in _TEXT_OF_STRINGS and isinstance(value_node, ScalarNode):
                    mapping[key_node.value] = self._scalar(value_node, is_text=True)
        for source in merged:
            if not isinstance(source, MappingNode):
                raise self._wrong(source, "`<<` takes a mapping", "write `<<: *name`")
            for key, value in self.value(source, at).items():
                mapping.setdefault(key, value)
        return mapping

    def _scalar(self, node: ScalarNode, is_text: bool) -> Any:
        text = node.value
        kind = node.tag.removeprefix(_TAG)
        # Times stay as written, as does 22:30, which YAML 1.1 reads as a base-60 number.
        if kind in ("str", "timestamp", "value") or _BASE_60.match(text):
            return text
        if kind not in ("null", "bool", "int", "float"):
            raise self._wrong(node, f"the tag `{node.tag}` is not supported", "remove the tag")
        try:
            value = self._scalars.construct_object(node)
        except (ValueError, yaml.YAMLError) as error:
            if is_text:
                return text
            raise self._wrong(
                node, f"`{text}` is not a valid {kind}", "put it in quotes"
            ) from error
        if is_text and isinstance(value, int | float) and literal(value) != text:
            return text
        if isinstance(value, float) and not math.isfinite(value):
            raise self._wrong(node, f"`{text}` is not a finite number", "put it in quotes")
        if isinstance(value, int) and abs(value) >> 63:
            raise self._wrong(node, f"the number `{text[:30]}` is too large", "put it in quotes")
        return value

    def _wrong(self, node: Node, problem: str, hint: str) -> InvalidSpec:
        return InvalidSpec(f"{_mark(self._name, node)}: {problem}", hint)


def _is_text(at: At) -> bool:
    """Whether Azure ML's schema calls what stands there a string, whatever it looks like."""
    if len(at) > 1 and at[-2] in _TEXTS:
        # Ours may be numbers and flags.
        return not (at[-2] == "properties" and str(at[-1]).startswith("torchyard."))
    around = at[-2] if len(at) > 1 else ""
    return bool(at) and at[-1] in _TEXT_KEYS and around not in _USERS_NAMES


def _no_key(node: Node) -> tuple[str, str]:
    """Problem and hint of a key that is a list or a mapping, as `{{NAME}}` is one."""
    pairs = node.value if isinstance(node, MappingNode) else []
    if len(pairs) == 1 and isinstance(pairs[0][0], ScalarNode):
        name = pairs[0][0].value[:80]
        return f"`{{{{{name}}}}}` is a placeholder", "replace it by its value"
    return "a key is not a string", "write `key: value`"


def _mark(name: str, node: Node) -> str:
    return f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _value_of(text: str) -> Any:
    try:
        node = yaml.compose(text, Loader=_Loader)
        return text if node is None else _Reading("--set").value(node, ())
    except (yaml.YAMLError, TorchyardError, RecursionError):
        return text
