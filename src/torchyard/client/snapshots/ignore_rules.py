"""Which files of a code folder stay at home.

Owns: the rules of `.amlignore`, else `.gitignore` (never both), read as azure-ai-ml reads them:
patterns are git's, but each file is judged by itself, and the last rule that matches it or a folder
around it decides. So a rule may include again what lies in an excluded folder, unlike in git, and
what lies behind a link to a folder is judged by where it really is.
Leaves: walking the folder to walk.py.
Always: only the ignore file at the folder's top counts; `.git` is never part of a snapshot, and
`__pycache__` only when a rule such as `!__pycache__/` names it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchyard.base.errors import InvalidInput

IGNORE_FILES = (".amlignore", ".gitignore")
_NEVER = ".git"
_PYCACHE = "__pycache__"
_FIRST_RULES = (f"{_PYCACHE}/",)
NO_RULE = -1
"""What decides on an entry that no rule matches: it is part of the snapshot."""

_REPEATED = re.compile(r"(?<![^/])(?:\*\*/){2,}")
_GLOB_CHARACTERS = frozenset("*?[\\")


@dataclass(frozen=True)
class Rule:
    """One line. `by_name` rules look at a file's name, the others at its path from the top."""

    pattern: re.Pattern[str]
    text: str
    negated: bool
    folders_only: bool
    by_name: bool
    line: int = 0


class IgnoreRules:
    """The rules of one ignore file, in order; the last one that matches decides."""

    def __init__(self, lines: Iterable[str] = (), file: str = "") -> None:
        numbered = enumerate((*_FIRST_RULES, *lines), 1 - len(_FIRST_RULES))
        rules = [rule for number, line in numbered if (rule := _rule(line, number)) is not None]
        self._file = file
        self._rules = rules
        self._last_negated = max(
            (index for index, rule in enumerate(rules) if rule.negated), default=NO_RULE
        )
        # Most files match no rule at all: those are told apart without trying every rule.
        self._names = {_NEVER}
        endings = []
        by_name, by_path = [], []
        for rule in rules:
            if not rule.by_name:
                by_path.append(rule.pattern.pattern)
            elif not _GLOB_CHARACTERS & set(rule.text):
                self._names.add(rule.text)
            elif rule.text[0] == "*" and not _GLOB_CHARACTERS & set(rule.text[1:]):
                endings.append(rule.text[1:])
            else:
                by_name.append(rule.pattern.pattern)
        self._endings = tuple(endings)
        self._by_name = _any_of(by_name)
        self._by_path = _any_of(by_path)

    def spares(self, names: list[str]) -> bool:
        """Whether it is plain at one look that no entry of these names is excluded."""
        has_patterns = self._endings or self._by_name is not None or self._by_path is not None
        return not has_patterns and self._names.isdisjoint(names)

    def deciding(self, path: str, name: str, is_folder: bool, around: int = NO_RULE) -> int:
        """The rule that decides on the entry `path` (slashes, from the top), called `name`.

        Args:
            around: the one that decides on the folder around it.
        """
        if name == _PYCACHE and is_folder and not self.excludes(around):
            around = 0  # a rule that includes the folder around it does not mean caches
        if not (
            name in self._names
            or name.endswith(self._endings)
            or (self._by_name is not None and self._by_name.match(name))
            or (self._by_path is not None and self._by_path.match(path))
        ):
            return around
        if name == _NEVER:
            return len(self._rules)
        for index in range(len(self._rules) - 1, around, -1):
            rule = self._rules[index]
            if rule.folders_only and not is_folder:
                continue
            if rule.pattern.match(name if rule.by_name else path):
                return index
        return around

    def deciding_on_folder(self, path: str) -> int:
        """The rule that decides on the folder `path`, by those around it; empty for the top."""
        deciding = NO_RULE
        parts = path.split("/") if path else []
        for depth, name in enumerate(parts, 1):
            deciding = self.deciding("/".join(parts[:depth]), name, True, deciding)
        return deciding

    def line_of(self, deciding: int) -> str:
        """`.amlignore:3`; empty for what is never part of a snapshot."""
        if not 0 <= deciding < len(self._rules) or not self._rules[deciding].line:
            return ""
        return f"{self._file}:{self._rules[deciding].line}"

    def excludes(self, deciding: int) -> bool:
        """Whether what this rule decides on stays at home."""
        return deciding >= len(self._rules) or (
            deciding != NO_RULE and not self._rules[deciding].negated
        )

    def may_include_below(self, deciding: int) -> bool:
        """Whether a later rule may include something of a folder that this one decides on."""
        return deciding < self._last_negated


def read(folder: Path) -> IgnoreRules:
    """The rules at the top of `folder`.

    Raises:
        InvalidInput: the ignore file can't be read as text.
    """
    for name in IGNORE_FILES:
        try:
            text = (folder / name).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"`{folder / name}` can't be read ({error})", "make it a readable UTF-8 file"
            ) from error
        return IgnoreRules(text.split("\n"), name)
    return IgnoreRules()


def _rule(line: str, number: int) -> Rule | None:
    text = _stripped(line)
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    text = _REPEATED.sub("**/", text)
    if text == "/**/":
        return None  # to azure-ai-ml it has a `//` in it; to git it means every folder
    if text.endswith("/**/"):
        text = text.removesuffix("/")  # files, too
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    by_name = "/" not in text
    text = text.removeprefix("/")
    expression = _expression(text) if text else None
    if expression is None:
        return None
    return Rule(re.compile(expression, re.DOTALL), text, negated, folders_only, by_name, number)


def _stripped(line: str) -> str:
    """Without white space around it, except for a space that a backslash stands before."""
    pattern = line.strip()
    backslashes = len(pattern) - len(pattern.rstrip("\\"))
    has_space = line.lstrip()[len(pattern) :].startswith(" ")
    return pattern + " " if backslashes % 2 and has_space else pattern


def _expression(glob: str) -> str | None:
    """A regular expression for the whole of `glob`; None for a glob that can match nothing."""
    # What stands between `**/`, and in that what stands between `*`.
    levels: list[list[str]] = [[""]]
    at = 0
    while at < len(glob):
        character = glob[at]
        if character == "*":
            end = at
            while end < len(glob) and glob[end] == "*":
                end += 1
            starts_level = at == 0 or glob[at - 1] == "/"
            if end - at == 2 and starts_level and end < len(glob) and glob[end] == "/":
                levels.append([""])
                end += 1
            elif end - at == 2 and starts_level and end == len(glob):
                levels[-1][-1] += ".+"
            else:
                levels[-1].append("")
            at = end
            continue
        if character == "[":
            character_class = _character_class(glob, at)
            if character_class is None:
                return None
            levels[-1][-1] += character_class[0]
            at = character_class[1]
            continue
        if character == "\\":
            at += 1
            if at == len(glob):
                return None
        levels[-1][-1] += "[^/]" if character == "?" else re.escape(glob[at])
        at += 1
    joined = [_joined(level, "[^/]*", "[^/]*?") for level in levels]
    return rf"(?:{_joined(joined, '(?:.*/)?', '(?:.*?/)??')})\Z"


_groups = itertools.count()


def _joined(parts: list[str], wildcard: str, shortest: str) -> str:
    """The parts with a wildcard between every two.

    All but the last one match as little as they can and are never tried again: where a part fits
    early, trying it later can't help, and trying it everywhere takes time without end.
    """
    expression = parts[0]
    for part in parts[1:-1]:
        name = f"g{next(_groups)}"
        expression += f"(?=(?P<{name}>{shortest}{part}))(?P={name})"
    return expression + wildcard + parts[-1] if len(parts) > 1 else expression


def _character_class(glob: str, start: int) -> tuple[str, int] | None:
    """The class that opens at `start` and the position behind it; None when it never closes."""
    at = start + 1
    # `^` is itself, as azure-ai-ml has it; to git it negates.
    negated = at < len(glob) and glob[at] == "!"
    at += negated
    first = at
    body = ""
    while at < len(glob) and (glob[at] != "]" or at == first):
        if glob[at] == "\\" and at + 1 < len(glob):
            at += 1
        elif glob[at] == "-" and at != first and at + 1 < len(glob) and glob[at + 1] != "]":
            body += "-"
            at += 1
            continue
        body += re.escape(glob[at])
        at += 1
    if at >= len(glob):
        return None
    expression = f"(?!/)[{'^' if negated else ''}{body}]"
    try:
        re.compile(expression)
    except re.error:
        # A range that runs backwards, `[z-a]`, matches nothing.
        return ("[^/]" if negated else "(?!)"), at + 1
    return expression, at + 1


def _any_of(expressions: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(expressions), re.DOTALL) if expressions else None
