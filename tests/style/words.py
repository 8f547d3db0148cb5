"""The words and turns of phrase that this project does not use, and where each is allowed.

`python tests/style/words.py [PATH…]` prints every place, which helps when you rename something.
The reasons stand in CONTRIBUTING.md under "Write".
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATHS: tuple[str, ...] = ("src", "tests", "benchmarks", "tools", "docs", "examples", "compat")
PATHS += ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# This file names the words itself.
NOT_OURS = {"__pycache__", "node_modules", "style"}

# Parts of identifiers, and what to write in their place.
IN_IDENTIFIERS = {
    "adopt": "take over",
    "adoption": "takeover",
    "anew": "again",
    "bell": "wakeup",
    "cancelled": "canceled",
    "cancelling": "canceling",
    "culprit": "failed rank",
    "door": "a name of its own: server, socket, endpoint",
    "doors": "a name of its own: server, socket, endpoint",
    "evidence": "artifacts",
    "furnish": "provision",
    "guardian": "supervisor",
    "heir": "recovery worker",
    "inherit": "recover",
    "inquest": "diagnosis",
    "leftover": "stale file, orphaned process",
    "leftovers": "stale files, orphaned processes",
    "meeting": "rendezvous",
    "orphan": "report the worker's death",
    "room": "services, package",
    "rooms": "services, packages",
    "scene": "context",
    "sheaf": "batch",
    "standing": "membership",
    "verdict": "root cause",
    "verdicts": "root causes",
    "whereabouts": "server address",
    "wishes": "options",
}
# Whole names of functions: verbs say what happens.
FUNCTIONS = {
    "come": "join",
    "goes": "remove",
    "is_own": "what it checks, as `is_job_error`",
    "one_by_one": "isolate_failures",
    "look": "a verb that says what is done",
    "shape": "to_json",
    "shown": "to_json",
    # Participles: a verb, or a noun that says what is returned.
    "_gone": "has_ended, removed_error",
    "_held": "lock, find_blocker, describe_contents",
    "_kept": "what is left: without_traffic, stored_fields",
    "_named": "find_by_name, quote_names",
    "_near": "suggest_name",
    "_told": "read, remember, with_outcome",
    "_wanted": "target_count, unsent_checkpoints",
    "_what": "describe",
    "_whole": "integer, write_atomically",
    "gone": "forget, drop",
    "held": "hold, list_running",
    "kept": "find_cached, read_stored",
    "told": "a verb that says what is done",
    "wanted": "target_count, waiting_deployments",
    "whole": "integer_at, write_atomically, complete_checkpoints",
}
# Whole names of parameters and local variables: they are nouns that say what they hold.
LOCALS = frozenset(
    {"asked", "found", "is_own", "given", "known", "mine", "one", "ours", "own", "said", "told"}
)
# The same, but not of fields: clients see their names.
LOCALS_BUT_NOT_FIELDS = frozenset(
    {"gone", "held", "kept", "most", "named", "near", "place", "places", "wanted", "what", "whole"}
)
# Turns of phrase in docstrings, comments, messages, help and documents.
PHRASES = {
    r"(?<!there )\b(?:is|are|was|were) no "
    r"(?!longer\b|more\b|less\b|fewer\b|later\b|newer\b|older\b|slower\b|faster\b|larger\b|hint\b)"
    r"[a-z]+": "is not a …",
    r"\bwhoever\b": "anyone who",
    r"\b(?:he|him|his|himself)\b": "they, you",
    r"\binquests?\b": "diagnosis",
    r"\bculprits?\b": "failed rank, root cause",
    r"\bguardians?\b": "supervisor",
    r"\bheirs?\b": "recovery worker",
    r"\bsheaf\b": "batch",
    r"\bwhereabouts\b": "address",
    r"\bleftovers?\b": "stale file, orphaned process",
    r"\bfurnish(?:ed|es)?\b": "provision",
    r"\b(?:the|this|a|each|every|other|own|its|their|whole) rooms?\b": "package",
    r"\brooms\b": "packages",
    r"\bfloors?\b": "layer",
    r"\bverdicts?\b": "root cause, decision",
    r"\b(?:the|a|each|every) meetings?\b": "rendezvous",
    r"\bback-fill": "backfill",
    r"\b(?:is|was|are|were) away\b": "is unreachable",
    r"\bknock(?:s|ed|ing)?\b": "connect, probe",
    r"\bwhat it is told\b": "what it receives",
    r"\banew\b": "again",
    r"\bcancell(?:ed|ing)\b": "canceled, canceling",
    r"\b(?:broke|broken|breaks?|breaking) off\b": "was interrupted",
    r"\bnot (?:a text|texts)\b(?! file)": "is not a string",
    r"\b(?:tell|ask) who(?:ever)? runs\b": "ask your server's administrator",
    r"\bin a form that this one\b": "in a format this version does not support",
}


@dataclass(frozen=True)
class Place:
    path: str
    line: int
    word: str
    instead: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{self.word}` -> {self.instead}: {self.text.strip()[:90]}"


@dataclass(frozen=True)
class Allowed:
    """A word that may stay: below `path`, for `reason`."""

    path: str
    word: str
    reason: str

    def covers(self, place: Place) -> bool:
        return place.path.startswith(self.path) and place.word == self.word


ALLOWED: tuple[Allowed, ...] = ()


def places(paths: Sequence[Path] = (), allowed: Sequence[Allowed] = ALLOWED) -> Iterator[Place]:
    """Every place with a retired word that nothing in `allowed` covers."""
    for path in _files(paths):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        for place in (in_python if path.suffix == ".py" else _in_prose)(name, text):
            if not any(exception.covers(place) for exception in allowed):
                yield place


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths or [ROOT / name for name in PATHS]:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.suffix in (".py", ".md", ".sh") and not NOT_OURS & set(file.parts):
                yield file


def in_python(name: str, text: str) -> Iterator[Place]:
    lines = text.splitlines()
    tree = ast.parse(text)
    for word, instead, line in (*_identifiers(tree), *_locals(tree), *_module_name(name)):
        yield Place(name, line, word, instead, lines[line - 1] if lines else "")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        is_text = kind in ("STRING", "FSTRING_MIDDLE") and " " in token.string
        if is_text or kind == "COMMENT":
            for place in _in_prose(name, token.string):
                yield replace(place, line=token.start[0] + place.line - 1)


def _module_name(name: str) -> Iterator[tuple[str, str, int]]:
    for part in re.split(r"[_/.]", name):
        if part in IN_IDENTIFIERS:
            yield part, IN_IDENTIFIERS[part], 1


def _identifiers(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """(word, what to write in its place, line) of what this file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name in FUNCTIONS:
                yield node.name, FUNCTIONS[node.name], node.lineno
            yield from _parts(node.name, node.lineno)
        elif isinstance(node, ast.ClassDef):
            yield from _parts(node.name, node.lineno)
        elif isinstance(node, ast.arg):
            yield from _local(node.arg, node.lineno, LOCALS)
            yield from _parts(node.arg, node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield from _local(node.id, node.lineno, LOCALS)
            yield from _parts(node.id, node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from _parts(node.attr, node.lineno)


def _locals(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    fields = {
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        for target in ast.walk(statement.target)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield from _local(node.arg, node.lineno, LOCALS_BUT_NOT_FIELDS)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            yield from _local(node.id, node.lineno, LOCALS_BUT_NOT_FIELDS)


def _local(name: str, line: int, retired: frozenset[str]) -> Iterator[tuple[str, str, int]]:
    if name in retired:
        yield name, "a noun that says what it holds", line


def _parts(name: str, line: int) -> Iterator[tuple[str, str, int]]:
    for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name):
        if part.lower() in IN_IDENTIFIERS:
            yield part.lower(), IN_IDENTIFIERS[part.lower()], line


def _in_prose(name: str, text: str) -> Iterator[Place]:
    for number, line in enumerate(text.splitlines(), 1):
        # What stands in backticks quotes code or a program's output.
        plain = re.sub(r"`[^`]*`", "``", line)
        for pattern, instead in _PHRASES:
            for match in pattern.finditer(plain):
                yield Place(name, number, match[0].lower(), instead, line)


_PHRASES = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in PHRASES.items()]


if __name__ == "__main__":
    offences = list(places([Path(argument).resolve() for argument in sys.argv[1:]]))
    print(*offences, sep="\n")
    print(f"{len(offences)} places")
    sys.exit(bool(offences))
