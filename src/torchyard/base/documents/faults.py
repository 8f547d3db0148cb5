"""Every fault of a document at once, found by a reader that stops at the first.

Owns: reading on without what is wrong, and telling a fault from the consequence of another.
Leaves: what is wrong to the reader.
Always: a document without a fault is read once; the first fault is the reader's own, and what comes
of leaving it out is not reported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from torchyard.base.errors import InvalidInput, NotFound, TorchyardError

Document = TypeVar("Document")
Value = TypeVar("Value")
At = tuple[str | int, ...]

_MOST = 20
# What stands for a value that others name, or that must be there.
_NEUTRAL = {
    "command": "true",
    "environment": "python",
    "name": "name",
    "path": "path",
    "sampling_algorithm": "random",
    "objective": {"goal": "minimize", "primary_metric": "metric"},
}
_NEUTRAL_ENTRIES: Mapping[str, Any] = {
    "inputs": "0",
    "outputs": {},
    "environment_variables": "",
    "search_space": {"type": "choice", "values": [1]},
}
# Where the absence of a key at the top may show.
_CONSEQUENCES = {
    "compute": ("resources", "distribution", "properties", "torchyard"),
    "environment": ("properties", "torchyard", "distribution"),
    "inputs": ("command", "environment_variables"),
    "outputs": ("command", "environment_variables"),
}
# Where a cluster names its engine: its settings depend on it.
_ENGINES = (("engine",), ("torchyard", "engine"), ("tags", "torchyard.engine"))
# A fault that leaves nothing of the rest to be judged.
_DECISIVE = ("type", "jobs", "task", "trial", "search_space")
_is_inside: ContextVar[bool] = ContextVar("_is_inside", default=False)


def all_at_once(read: Callable[[Document], Value]) -> Callable[[Document], Value]:
    """Make the error of `read` carry the document's further faults as `others`."""

    @functools.wraps(read)
    def reading(document: Document) -> Value:
        return collected(read, document)

    return reading


def collected(read: Callable[[Document], Value], document: Document) -> Value:
    """What `read` returns; its error carries the document's further faults as `others`."""
    if _is_inside.get():
        return read(document)
    token = _is_inside.set(True)
    try:
        return read(document)
    except (InvalidInput, NotFound) as error:
        if isinstance(document, Mapping):
            error.add_others([*error.others, *_others(read, document, error)])
        raise
    finally:
        _is_inside.reset(token)


def _others(
    read: Callable[[Any], object], document: Mapping[Any, Any], first: TorchyardError
) -> list[TorchyardError]:
    others: list[TorchyardError] = []
    removed: list[At] = []
    renamed: list[tuple[At, str]] = []
    fault: TorchyardError = first
    fault_at = first.at
    rest: Any = document
    for _ in range(_MOST):
        is_needed = len(fault_at) == 1 and fault_at[0] in _NEUTRAL
        at = fault_at if is_needed else _place_of(rest, fault_at)
        if not at or (fault.code == "not_served" and len(at) == 1 and at[0] in _DECISIVE):
            break
        if fault.others and at and isinstance(at[-1], int):
            at = at[:-1]  # whose reader went through the whole list
        if at in removed:
            at = at[:-1]
            if not at:
                break
        if _has_another_name(fault, rest, at):
            rest = _with_key(rest, at, fault.meant_key)
            renamed.append((at, fault.meant_key))
        else:
            rest = _without(rest, at)
            removed.append(at)
            if len(at) == 1 and fault.meant_key in _NEUTRAL:
                rest = {fault.meant_key: _NEUTRAL[fault.meant_key], **rest}
        try:
            read(rest)
            break
        except (InvalidInput, NotFound) as error:
            fault, fault_at = error, error.at
        except TorchyardError:
            break
        if not _is_consequence(fault_at, removed, rest):
            beside = [each for each in fault.others if not _is_consequence(each.at, removed, rest)]
            for each in (fault, *beside):
                each.others = ()  # those that are no consequence are in `beside`
                each.at = _as_written(each.at, renamed)
                if all((each.at, each.message) != (other.at, other.message) for other in others):
                    others.append(each)
        elif not fault_at:
            break
    return others


def _place_of(document: Any, at: At) -> At:
    """The value to leave out: what stands at `at`, or the nearest around it that is there."""
    if len(at) == 2 and at[0] == "properties" and isinstance(document.get("torchyard"), Mapping):
        written = ("torchyard", *str(at[1]).removeprefix("torchyard.").split("."))
        if _reaches(document, written[:2]):
            at = written
    while at and not _reaches(document, at):
        at = at[:-1]
    # Of another type the keys beside it would mean something else.
    return at[:-1] if len(at) > 1 and at[-1] == "type" else at


def _reaches(value: Any, at: At) -> bool:
    for step in at:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
            value = value[step]
        else:
            return False
    return True


def _has_another_name(fault: TorchyardError, document: Any, at: At) -> bool:
    """Whether to read on below an unknown key by the name that was meant."""
    around = _at(document, at[:-1])
    if not fault.meant_key or fault.meant_key in around:
        return False
    return len(at) > 1 or isinstance(around[at[0]], Mapping)


def _at(value: Any, at: At) -> Any:
    for step in at:
        value = value[step]
    return value


def _with_key(value: Any, at: At, key: str) -> Any:
    """A copy in which the last key of `at` is called `key`."""
    if len(at) == 1:
        return {key if each == at[0] else each: inner for each, inner in value.items()}
    copy: Any = list(value) if isinstance(value, list) else dict(value)
    copy[at[0]] = _with_key(value[at[0]], at[1:], key)
    return copy


def _as_written(at: At, renamed: list[tuple[At, str]]) -> At:
    """The place in the document for one in a copy whose keys were renamed."""
    for written, key in reversed(renamed):
        if at[: len(written)] == (*written[:-1], key):
            at = (*written, *at[len(written) :])
    return at


def _without(value: Any, at: At, around: At = ()) -> Any:
    """A copy without what stands at `at`, or with what may stand there in its place."""
    step, rest = at[0], at[1:]
    if isinstance(value, list):
        position = int(step)
        inner = [_without(value[position], rest, (*around, step))] if rest else []
        if around[-1:] == ("dependencies",):
            inner = inner or ["pip"]  # what stands behind it keeps its place
        return [*value[:position], *inner, *value[position + 1 :]]
    copy = dict(value)
    if rest:
        copy[step] = _without(value[step], rest, (*around, step))
    elif len(around) == 1 and around[0] in _NEUTRAL_ENTRIES:
        copy[step] = _NEUTRAL_ENTRIES[str(around[0])]
    elif step in _NEUTRAL and around in ((), ("trial",)):
        copy[step] = _NEUTRAL[str(step)]
    else:
        del copy[step]
    return copy


def _is_consequence(at: At, removed: list[At], rest: Any) -> bool:
    """Whether a fault may come of what was left out, at the same value or where it is used."""
    if not at:
        return any(len(each) == 1 for each in removed)
    is_absent = not _reaches(rest, at)
    for each in removed:
        if is_absent and each[:-1] == at[:-1]:
            # Its name was misspelt, or is that of an older schema.
            return True
        shared = min(len(at), len(each))
        if at[:shared] == each[:shared]:
            return True
        if len(each) == 1 and at[0] in _CONSEQUENCES.get(str(each[0]), ()):
            return True
        if each[0] == "trial" and at[0] == "search_space":
            return True
        if each in _ENGINES and (at[0] == "torchyard" or str(at[-1]).startswith("torchyard.")):
            return True
    return False
