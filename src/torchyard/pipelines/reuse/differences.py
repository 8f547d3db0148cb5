"""What differs between two recipes, in words: the file, the input, the value, the package.

Owns: the differences and how each is said.
Leaves: which two are compared to ../actions.py.
Always: recipes whose keys differ have a difference; nothing is read but what recipes keep and
snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.errors import TorchyardError
from torchyard.base.fields import literal
from torchyard.pipelines.reuse.recipes import Recipe

_MOST_FILES = 5
_LONGEST = 80
_BEFORE = 20

FilesOf = Callable[[str], Mapping[str, str]]
"""The files of a snapshot, by its id, each with its checksum, a blank and its mode."""


@dataclass(frozen=True)
class Environment:
    """What is known of an environment; `packages` are those of its lock, or as they were asked for
    where there is none.
    """

    python: str = ""
    image: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)


EnvironmentsOf = Callable[[str, str], tuple[Environment, Environment]]
"""Of two hashes, in a form in which they can be compared."""


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
    environments_of: EnvironmentsOf,
) -> list[Difference]:
    """
    Args:
        code_of: raises TorchyardError for a snapshot that is gone.
        environments_of: empty where nobody knows them.
    """
    found = [
        *_code(before, after, code_of),
        *_values("command", "", before["command"], after["command"]),
        *_inputs(before["inputs"], after["inputs"]),
        *_environment(before, after, environments_of),
        *_outputs(before["outputs"], after["outputs"]),
    ]
    parts = {"environment variable": "variables", "setting": "settings"}
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
        yield Difference("code", "", "the code differs, and is gone")


def _inputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield from _values("input", name, *(each and _said(each) for each in (old, new)))
            continue
        yield from _parts("input", name, old, new, ("type", "mode"))
        if old.get("content") != new.get("content"):
            yield from _content(name, old, new)
        elif "content" not in new and _said(old) != _said(new):
            yield from _values("input", name, _said(old), _said(new))


def _said(job_input: Mapping[str, Any]) -> Any:
    """As a file has it: a value, or where the data lies."""
    return job_input.get("value", job_input.get("path"))


def _outputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield from _values("output", name, *(each and each["type"] for each in (old, new)))
        else:
            yield from _parts("output", name, old, new, ("type", "mode", "path"))


def _parts(
    what: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any], keys: tuple[str, ...]
) -> Iterator[Difference]:
    for key in keys:
        if old.get(key) != new.get(key):
            text = f"{key} of {what} `{name}` was {_shown(old.get(key))} and is "
            yield Difference(what, name, text + _shown(new.get(key)))


def _content(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    files = _files(old["files"], new["files"]) if "files" in old and "files" in new else []
    shown = [f"`{path}` {verb}" for path, verb in files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        shown.append(f"and {len(files) - _MOST_FILES} more")
    detail = f": {', '.join(shown)}" if shown else ""
    yield Difference("input", name, f"the content of input `{name}` differs{detail}")


def _environment(
    before: Recipe, after: Recipe, environments_of: EnvironmentsOf
) -> Iterator[Difference]:
    if before["environment"] == after["environment"]:
        return
    old, new = environments_of(before["environment"], after["environment"])
    found = []
    for what, before_it, after_it in (
        ("Python", old.python, new.python),
        ("image", old.image, new.image),
    ):
        if before_it != after_it:
            text = f"{what} of the environment: {before_it or 'none'} → {after_it or 'none'}"
            found.append(Difference("environment", what, text))
    packages = sorted({*old.packages, *new.packages})
    changed = [name for name in packages if old.packages.get(name) != new.packages.get(name)]
    for name in changed[:_MOST_FILES]:
        versions = (each.packages.get(name, "none") or "any" for each in (old, new))
        text = f"package `{name}` of the environment: {' → '.join(versions)}"
        found.append(Difference("environment", name, text))
    if len(changed) > _MOST_FILES:
        more = len(changed) - _MOST_FILES
        found.append(
            Difference("environment", "", f"{more} more packages of the environment differ")
        )
    yield from found or [Difference("environment", "", "the environment differs")]


def _files(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str]]:
    """What changed, by path; a file that only moved is said once."""
    gone = {path: content for path, content in old.items() if path not in new}
    found = []
    for path, content in new.items():
        if path in old:
            if old[path] != content:
                found.append((path, _became(old[path], content)))
            continue
        source = next((before for before, each in gone.items() if each == content), None)
        if source is not None:
            del gone[source]
        found.append((path, f"was `{source}`" if source is not None else "is new"))
    return sorted([*found, *((path, "is gone") for path in gone)])


def _became(old: str, new: str) -> str:
    """Of a file that is there still; its mode stands behind a blank, where it is known."""
    (before, _, old_mode), (after, _, new_mode) = old.partition(" "), new.partition(" ")
    return f"has mode {new_mode}; it was {old_mode}" if before == after else "differs"


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
