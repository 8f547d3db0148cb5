"""Documents of the command line: a YAML file, `--set` and options, and the place of each value.

Owns: `--set`, errors with their place.
Leaves: reading YAML to base/documents/yaml_files.py, what the values mean to the server.
Always: what is a string in Azure ML's schema stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.base import assignments
from torchyard.base.assignments import At
from torchyard.base.documents import yaml_files
from torchyard.base.errors import InvalidInput, InvalidSpec, TorchyardError, did_you_mean

_ASSIGNMENT = re.compile(r"""((?:"[^"]*"|[^"=])*)(=)(.*)\Z""", re.DOTALL)


@dataclass
class Document:
    """A parsed YAML file. `places` has the position of each key and list item: `job.yml:7:3`.

    `name` is empty if there is no file and options alone fill the document.
    """

    name: str
    folder: Path
    value: dict[str, Any]
    places: dict[At, str] = field(default_factory=dict)

    def position_of(self, at: Iterable[str | int]) -> str:
        """The position of `at`, or of the nearest value around it that exists."""
        return self.places.get(self._existing(tuple(at)), self.name)

    def _existing(self, steps: At) -> At:
        if len(steps) == 2 and steps[0] == "properties" and steps not in self.places:
            # It may stand in the mapping `torchyard`, which means the same.
            written = tuple(str(steps[1]).split("."))
            steps = written if written in self.places else steps
        while steps not in self.places and steps:
            steps = steps[:-1]
        return steps

    def locate(self, error: TorchyardError) -> TorchyardError:
        """The same error, prefixed with its position if it has one in this document, and so with
        the others that it carries: all in the order of the document.
        """
        if error.others:
            errors = [self._located(each) for each in (error, *error.others)]
            errors.sort(key=lambda each: self._order(each.at))
            errors[0].add_others(errors[1:])
            errors[0].__cause__ = error
            return errors[0]
        return self._located(error)

    def _order(self, at: At) -> int:
        """Where `at` stands among all places of the document."""
        steps = self._existing(at)
        return next((n for n, key_path in enumerate(self.places) if key_path == steps), 0)

    def _located(self, error: TorchyardError) -> TorchyardError:
        # Errors from the server are recognized by code, not by class.
        if error.is_located or (not error.at and error.code != InvalidSpec.code):
            return error
        position = self.position_of(error.at)
        message = f"{position}: {error.message}" if position else error.message
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
        self._check_step(at, path)
        value = yaml_files.value_or_text(text, at, self._type_around(at))
        assignments.assign(self.value, at, value, f"--set {path}")
        for below in [key_path for key_path in self.places if key_path[: len(at)] == at]:
            del self.places[below]
        for length in range(1, len(at) + 1):
            self.places.setdefault(at[:length], f"--set {path}")

    def _check_step(self, at: At, path: str) -> None:
        """Of a pipeline, a value is set of a step that is there, or one is begun."""
        steps = self.value.get("jobs")
        is_below = len(at) > 2 and at[0] == "jobs" and at[2] not in ("component", "command", "type")
        if is_below and isinstance(steps, dict) and at[1] not in steps:
            raise InvalidInput(
                f"--set {path}: there is no step `{at[1]}`",
                did_you_mean(str(at[1]), list(steps)),
                at=at,
            )

    def _type_around(self, at: At) -> str:
        around: Any = self.value
        for step in at[:-1]:
            around = around.get(step) if isinstance(around, dict) else None
        return str(around.get("type")) if isinstance(around, dict) else ""

    def fill(self, options: Mapping[str, Any]) -> None:
        """Set the keys whose option is not None."""
        for key, value in options.items():
            if value is not None:
                self.value[key] = value
                self.places[(key,)] = f"--{key.replace('_', '-')}"

    def take_over(self, is_asked: bool) -> None:
        """Say that what the document names becomes the caller's."""
        if is_asked:
            self.set("torchyard.take_over=true")


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
    content = yaml_files.read(path, str(file))
    return Document(str(file), path.absolute().parent, content.value, content.places)


def parse(text: str, name: str, folder: Path) -> Document:
    """Read the text of such a file; its paths are relative to `folder`.

    Raises:
        InvalidSpec: it is not valid; the message begins with the position.
    """
    content = yaml_files.parse(text, name)
    return Document(name, folder, content.value, content.places)
