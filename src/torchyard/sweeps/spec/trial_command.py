"""The command of a trial: `${{search_space.NAME}}` and the values that it stands for.

Owns: which hyperparameters a command uses; putting their values in as single words of the shell.
Leaves: `${{inputs.…}}` and `${{outputs.…}}` to jobs/ and the worker.
Always: a value is one word, or a part of one, whatever it holds: nothing in it is expanded by the
shell, and nothing by the worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidSpec, did_you_mean, nearest
from torchyard.base.fields import literal
from torchyard.shared import brackets
from torchyard.sweeps.spec import shell_quotes
from torchyard.sweeps.spec.search_space import Parameter, SearchSpace, Value, branches

_OPEN, _CLOSE = "${{", "}}"
_OPTIONAL = ("$[[", "]]")
_SPACE = "search_space."
_INPUTS = "inputs."
_HEADS = ("search_space", "inputs", "outputs")
VARIABLE_PREFIX = "AZUREML_SWEEP_"
AT = ("trial", "command")
_LONGEST_COMMAND = 128 << 10
_MOST_USES = 1000


@dataclass(frozen=True)
class _Use:
    """A place of the command, as positions, at which the value of `path` stands."""

    start: int
    end: int
    path: tuple[str, ...]


def check(command: str, space: SearchSpace, inputs: Mapping[str, Any]) -> None:
    """The command and the search space go together.

    Raises:
        InvalidSpec: one has a hyperparameter that the other has not, or a choice between mappings
            lacks what the command always needs.
    """
    if len(command) > _LONGEST_COMMAND:
        return  # refused with the other keys of a job
    uses = list(_uses(command, space, inputs))
    if len(uses) > _MOST_USES:
        raise InvalidSpec(
            f"the command uses hyperparameters in more than {_MOST_USES} places",
            f"use `${VARIABLE_PREFIX}<name>`, the variable, instead",
            at=AT,
        )
    for use in uses:
        if use.path[0] not in space.parameters:
            name = ".".join(use.path)[:80]
            raise InvalidSpec(
                f"the command uses `${{{{search_space.{name}}}}}`, and the search space has no "
                f"`{use.path[0][:80]}`",
                did_you_mean(
                    use.path[0],
                    space.parameters,
                    f"add a range for `{use.path[0][:80]}` to the search space",
                ),
                at=AT,
            )
    for content in brackets.contents(command, _OPEN, _CLOSE):
        head, _, last = content.strip().rpartition(".")
        if head not in _HEADS and last in space.parameters:
            raise InvalidSpec(
                f"`${{{{{content.strip()[:80]}}}}}` is not an expression that a trial can use",
                f"did you mean `${{{{search_space.{last}}}}}`?",
                at=AT,
            )
    optional = [*_optional_parts(command)]
    for use in uses:
        is_optional = any(start <= use.start and use.end <= end for start, end in optional)
        _check_path(space.parameters[use.path[0]], use.path, is_optional)
    used = {use.path[0] for use in uses}
    for name in space.parameters:
        if name not in used and f"{VARIABLE_PREFIX}{name}" not in command:
            guess = nearest(name, sorted(used))
            raise InvalidSpec(
                f"the command does not use hyperparameter `{name}`",
                f"did you mean `{guess}`?"
                if guess
                else f"write `--{name} ${{{{search_space.{name}}}}}` in the command, or remove "
                f"`{name}` from the search space",
                at=("search_space", name),
            )
    _check_quotable(command, uses, space)


def filled(
    command: str, space: SearchSpace, inputs: Mapping[str, Any], parameters: Mapping[str, Value]
) -> str:
    """The command with the values of a trial.

    A part in `$[[ … ]]` is left out when it uses a nested hyperparameter that the trial has not.
    """
    uses = list(_uses(command, space, inputs))
    quotes = shell_quotes.at(command, [use.start for use in uses])
    # Each piece of the command that changes, as its positions and what comes instead.
    pieces: list[tuple[int, int, str]] = []
    absent = []
    for use, quote in zip(uses, quotes, strict=True):
        value = _value(parameters, use.path)
        if value is None:
            absent.append(use.start)
        else:
            pieces.append((use.start, use.end, shell_quotes.quoted(text(value), quote)))
    for start, end in _optional_parts(command):
        if any(start <= index < end for index in absent):
            pieces = [piece for piece in pieces if not start <= piece[0] < end]
            pieces.append((start, end, ""))
    written = []
    position = 0
    for start, end, replacement in sorted(pieces):
        written += [command[position:start], replacement]
        position = end
    return "".join([*written, command[position:]])


def text(value: Value) -> str:
    """A value as an argument or a variable: mappings as JSON."""
    return json.dumps(value) if isinstance(value, Mapping) else literal(value)


def _uses(command: str, space: SearchSpace, inputs: Mapping[str, Any]) -> Iterator[_Use]:
    """`${{inputs.NAME}}` counts where NAME is a hyperparameter and no input, as in components."""
    position = 0
    while (start := command.find(_OPEN, position)) >= 0:
        end = command.find(_CLOSE, start)
        if end < 0:
            return
        position = end + len(_CLOSE)
        content = command[start + len(_OPEN) : end].strip()
        if content.startswith(_SPACE):
            yield _Use(start, position, tuple(content[len(_SPACE) :].split(".")))
        elif content.startswith(_INPUTS):
            path = tuple(content[len(_INPUTS) :].split("."))
            if path[0] in space.parameters and path[0] not in inputs:
                yield _Use(start, position, path)


def _optional_parts(command: str) -> Iterator[tuple[int, int]]:
    """Those with an expression, as positions."""
    position = 0
    for content in brackets.contents(command, *_OPTIONAL):
        start = command.index(_OPTIONAL[0], position)
        position = start + len(content) + len(_OPTIONAL[0]) + len(_OPTIONAL[1])
        if _OPEN in content:
            yield start, position


def _check_path(parameter: Parameter, path: tuple[str, ...], is_optional: bool) -> None:
    if len(path) == 1:
        return
    name = ".".join(path)[:80]
    mappings = branches(parameter)
    having = [branch for branch in mappings if path[1] in branch.parameters]
    if not having:
        names = sorted({key for branch in mappings for key in branch.parameters})
        raise InvalidSpec(
            f"the command uses `${{{{search_space.{name}}}}}`, and no value of `{path[0]}` has it",
            did_you_mean(path[1], names, f"add `{path[1][:80]}` to one of its values"),
            at=AT,
        )
    count = len(getattr(parameter, "values", ()))
    if len(having) < count and not is_optional:
        raise InvalidSpec(
            f"the command always uses `${{{{search_space.{name}}}}}`, and only some values of "
            f"`{path[0]}` have it",
            f"write `$[[--{path[1][:80]} ${{{{search_space.{name}}}}}]]`: such a part is left out "
            "where it has no value",
            at=AT,
        )
    for branch in having:
        _check_path(branch.parameters[path[1]], path[1:], is_optional)


def _check_quotable(command: str, uses: list[_Use], space: SearchSpace) -> None:
    """Where nothing can be quoted, only plain values may stand."""
    quotes = shell_quotes.at(command, [use.start for use in uses])
    pairs = zip(uses, quotes, strict=True)
    names = {use.path[0] for use, quote in pairs if quote == shell_quotes.UNQUOTABLE}
    for name in sorted(names):
        if not all(map(shell_quotes.is_plain, _texts(space.parameters[name]))):
            raise InvalidSpec(
                f"`{name}` is used where the shell can't quote it, and one of its values has "
                "characters that the shell reads",
                f"in a here-document or a comment use `${VARIABLE_PREFIX}{name}`; write `$(…)` for "
                "backticks",
                at=AT,
            )


def _texts(parameter: Parameter) -> Iterator[str]:
    for value in getattr(parameter, "values", ()):
        yield "{}" if isinstance(value, SearchSpace) else literal(value)


def _value(parameters: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = parameters
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
