"""What differs between two recipes, in words: the file, the input, the value, the package.

Owns: the differences and how each is said.
Leaves: which two are compared to ../actions.py.
Always: recipes whose keys differ have a difference; nothing is read but what recipes keep and
snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import TorchyardError
from torchyard.base.fields import literal
from torchyard.pipelines.reuse.recipes import Recipe

_MOST_FILES = 5
_LONGEST = 80
_BEFORE = 20

FilesOf = Callable[[str], Mapping[str, str]]
"""The files of a snapshot, by its id, each with its checksum."""

PackagesOf = Callable[[str], Mapping[str, str]]
"""The versions of the packages in the lock of an environment, by its hash."""


@dataclass(frozen=True)
class Difference:
    """`what` is `code`, `command`, `input`, `environment`, `environment variable`, `setting` or
    `output`, and `name` says which one.
    """

    what: str
    name: str
    text: str


def between(
    before: Recipe,
    after: Recipe,
    code_of: FilesOf,
    packages_of: PackagesOf,
) -> list[Difference]:
    """
    Args:
        code_of: raises TorchyardError for a snapshot that is gone.
        packages_of: empty where nobody knows them.
    """
    found = [
        *_code(before, after, code_of),
        *_values("command", "", before["command"], after["command"]),
        *_inputs(before["inputs"], after["inputs"]),
        *_environment(before, after, packages_of),
    ]
    parts = {"environment variable": "variables", "setting": "settings", "output": "outputs"}
    for what, part in parts.items():
        old, new = before[part], after[part]
        for name in sorted({*old, *new}):
            found += _values(what, name, old.get(name), new.get(name))
    return found


def _values(what: str, name: str, old: Any, new: Any) -> Iterator[Difference]:
    if old == new:
        return
    subject = f"{what} `{name}`" if name else f"the {what}"
    if old is None:
        yield Difference(what, name, f"{subject} is new: {_shown(new)}")
    elif new is None:
        yield Difference(what, name, f"{subject} is gone; it was {_shown(old)}")
    else:
        before, after = _apart(old, new)
        yield Difference(what, name, f"{subject} was {_shown(before)} and is {_shown(after)}")


def _code(before: Recipe, after: Recipe, code_of: FilesOf) -> Iterator[Difference]:
    old, new = before["code"], after["code"]
    if old == new:
        return
    try:
        files = _files(code_of(old) if old else {}, code_of(new) if new else {})
    except TorchyardError:
        files = []
    for path, verb in files[:_MOST_FILES]:
        yield Difference("code", path, f"`{path}` of the code {verb}")
    if len(files) > _MOST_FILES:
        more = len(files) - _MOST_FILES
        yield Difference("code", "", f"{more} more files of the code differ")
    if not files:
        yield Difference("code", "", "the code differs in the modes of files, or is gone")


def _inputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            verb = "is new" if old is None else "is gone"
            yield Difference("input", name, f"input `{name}` {verb}")
            continue
        for key in ("value", "type", "mode"):
            if old.get(key) != new.get(key):
                said = "" if key == "value" else f"{key} of "
                subject = f"{said}input `{name}`"
                text = f"{subject} was {_shown(old.get(key))} and is {_shown(new.get(key))}"
                yield Difference("input", name, text)
        if old.get("content") != new.get("content"):
            yield from _content(name, old, new)
        elif "content" not in new and old.get("path") != new.get("path"):
            yield from _values("input", name, old.get("path"), new.get("path"))


def _content(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    files = _files(old["files"], new["files"]) if "files" in old and "files" in new else []
    shown = [f"`{path}` {verb}" for path, verb in files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        shown.append(f"and {len(files) - _MOST_FILES} more")
    detail = f": {', '.join(shown)}" if shown else ""
    yield Difference("input", name, f"the content of input `{name}` differs{detail}")


def _environment(before: Recipe, after: Recipe, packages_of: PackagesOf) -> Iterator[Difference]:
    if before["environment"] == after["environment"]:
        return
    old, new = packages_of(before["environment"]), packages_of(after["environment"])
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    for name in changed[:_MOST_FILES]:
        text = f"package `{name}` of the environment: {old.get(name, 'none')} → " + new.get(
            name, "none"
        )
        yield Difference("environment", name, text)
    if len(changed) > _MOST_FILES:
        more = len(changed) - _MOST_FILES
        yield Difference("environment", "", f"{more} more packages of the environment differ")
    if not changed:
        text = "the environment differs: its Python, image or variables"
        yield Difference("environment", "", text)


def _files(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str]]:
    """What changed, by path; a file that only moved is said once."""
    gone = {path: sha for path, sha in old.items() if path not in new}
    moved = {}
    for path, sha in new.items():
        if path not in old:
            source = next((before for before, each in gone.items() if each == sha), None)
            if source is not None:
                moved[path] = source
                del gone[source]
    verbs = {path: "differs" if path in old else "is new" for path in new}
    verbs |= {path: f"was `{source}`" for path, source in moved.items()}
    found = [(path, verbs[path]) for path, sha in new.items() if old.get(path) != sha]
    return sorted([*found, *((path, "is gone") for path in gone)])


def _apart(old: Any, new: Any) -> tuple[Any, Any]:
    """Both from a little before where they part, where they are long."""
    before, after = (" ".join(str(each).split()) for each in (old, new))
    if max(len(before), len(after)) <= _LONGEST:
        return old, new
    same = next(
        (at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]),
        min(len(before), len(after)),
    )
    start = max(0, same - _BEFORE)
    return (f"…{before[start:]}", f"…{after[start:]}") if start else (before, after)


def _shown(value: Any) -> str:
    text = literal(value) if isinstance(value, str | int | float | bool) else str(value)
    text = " ".join(text.split())
    return f"`{text if len(text) <= _LONGEST else f'{text[: _LONGEST - 1]}…'}`"
