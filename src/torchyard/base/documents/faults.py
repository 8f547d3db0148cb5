"""The faults of a document: several at once, in its order, and the document without them.

Leaves: what is wrong to those who read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec, TorchyardError

Value = TypeVar("Value")

MOST = 20
"""How many faults of a document are reported."""


def together(*checks: Callable[[], Any], body: Any = None) -> list[Any]:
    """What each of them returns.

    Args:
        body: the document, for the order of faults; else they are in that of the checks.

    Raises:
        InvalidSpec: the first fault that one raised; it carries those of the others.
    """
    values, faults = [], []
    for check in checks:
        try:
            values.append(check())
        except InvalidSpec as error:
            faults.append(error)
    if faults:
        raise joined(faults, body, ())
    return values


def within(at: At, function: Callable[[str], Value], name: str) -> Value:
    """What the function returns of `name`; its errors are at places below `at`."""
    try:
        return function(name)
    except InvalidSpec as error:
        for each in (error, *error.others):
            each.at = (*at, *each.at)
        raise


def entries(
    bodies: Mapping[Any, Any], at: At, read: Callable[[Any, At], Value]
) -> dict[Any, Value]:
    """Each entry of a mapping of names, or of positions, read.

    Raises:
        InvalidSpec: the faults of all of them.
    """
    values: dict[Any, Value] = {}
    faults: list[InvalidSpec] = []
    for name, body in bodies.items():
        try:
            values[name] = read(body, (*at, name))
        except InvalidSpec as error:
            faults.append(error)
    if faults:
        raise joined(faults, bodies, at)
    return values


def reaches(body: Any, place: Sequence[str | int]) -> bool:
    """Whether there is something at this place, which is not the document as a whole."""
    for step in place:
        if not isinstance(body, Mapping) or step not in body:
            return isinstance(body, list)
        body = body[step]
    return bool(place)


def shown_key(key: Any) -> str:
    """A key as text: those of files may be numbers, those of JSON half a character."""
    return str(key).encode("utf-8", "backslashreplace").decode()


def without(body: Any, places: Iterable[Sequence[str | int]]) -> Any:
    """A copy without what stands at these places."""
    if not isinstance(body, Mapping):
        return body
    below: dict[str | int, list[Sequence[str | int]]] = {}
    for place in places:
        if not place:
            return {}
        below.setdefault(place[0], []).append(place[1:])
    return {
        key: without(value, below[shown_key(key)]) if shown_key(key) in below else value
        for key, value in body.items()
        if not any(not rest for rest in below.get(shown_key(key), ()))
    }


def joined(faults: Iterable[TorchyardError], body: Any, at: At) -> TorchyardError:
    """One error that carries all of them, in the order of the document, up to a limit."""
    every = [each for fault in faults for each in (fault, *fault.others)]
    positions = Positions(body)
    first, *rest = sorted(every, key=lambda fault: positions(fault.at[len(at) :]))[:MOST]
    first.add_others(rest)
    return first


class Renamed:
    """A document with right names in place of those that were misspelt."""

    def __init__(self, body: Any) -> None:
        self.body = body
        self._renamed: list[tuple[At, str]] = []

    def rename(self, place: At, name: str) -> bool:
        """False if the mapping there has that name, too."""
        around = self.body
        for step in place[:-1]:
            around = around[step]
        if name in around:
            return False
        self.body = _with_name(self.body, place, name)
        self._renamed.append((place, name))
        return True

    def restore(self, fault: TorchyardError, at: At) -> None:
        """Let the fault be at its place in the document as it was written, which is at `at`."""
        for each in (fault, *fault.others):
            inner = each.at[len(at) :]
            for place, name in reversed(self._renamed):
                if inner[: len(place)] == (*place[:-1], name):
                    inner = (*place, *inner[len(place) :])
            each.at = (*at, *inner)


def _with_name(body: Mapping[Any, Any], place: At, name: str) -> dict[Any, Any]:
    step, *rest = place
    if rest:
        return {**body, step: _with_name(body[step], tuple(rest), name)}
    return {name if shown_key(key) == step else key: value for key, value in body.items()}


class Positions:
    """Sorts places of a document as its reader meets them."""

    def __init__(self, body: Any) -> None:
        self._body = body
        self._orders: dict[int, dict[str, int]] = {}

    def __call__(self, place: Sequence[str | int]) -> tuple[int, ...]:
        position: list[int] = []
        body = self._body
        for step in place:
            order = self._order(body)
            if str(step) not in order:
                break
            position.append(order[str(step)])
            body = body.get(step)
        return tuple(position)

    def _order(self, body: Any) -> dict[str, int]:
        if not isinstance(body, Mapping):
            return {}
        if id(body) not in self._orders:
            self._orders[id(body)] = {str(key): number for number, key in enumerate(body)}
        return self._orders[id(body)]
