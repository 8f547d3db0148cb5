"""The spelling and the phrases that this project does not use.

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
# Scripts as users write them, some of them not even Python.
FAULTS = (ROOT / "tests/causes/faults", ROOT / "tests/causes/held_back")

# American spelling, in identifiers as in prose.
SPELLING = {"cancelled": "canceled", "cancelling": "canceling"}
# What users would stumble over, in messages, help, docstrings and documents.
PHRASES = {
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


def places(paths: Sequence[Path] = ()) -> Iterator[Place]:
    """Every place with a retired word."""
    for path in _files(paths):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        yield from (in_python if path.suffix == ".py" else _in_prose)(name, text)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths or [ROOT / name for name in PATHS]:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            is_ours = not NOT_OURS & set(file.parts) and not set(FAULTS) & set(file.parents)
            if file.suffix in (".py", ".md", ".sh") and is_ours:
                yield file


def in_python(name: str, text: str) -> Iterator[Place]:
    lines = text.splitlines()
    for word, line in _identifiers(ast.parse(text)):
        yield Place(name, line, word, SPELLING[word], lines[line - 1])
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_text = tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE")
        if is_text and " " in token.string:
            for place in _in_prose(name, token.string):
                yield replace(place, line=token.start[0] + place.line - 1)


def _identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(misspelled part, line) of each name that this file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        else:
            continue
        for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name):
            if part.lower() in SPELLING:
                yield part.lower(), node.lineno


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
