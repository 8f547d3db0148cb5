"""Every regular expression of the package, collected from its code, with how it is used.

A pattern is found where it stands: as the first argument of `re.compile`, `re.search` and their
like, or as the `pattern=` of a field. It is computed in its module, so that one which is put
together from constants counts too. Where it is a local variable, `SOURCES` says which patterns
come there; a place that is neither fails the test, so that no new pattern is left out.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_ONLY_RE = ModuleType("only_re")
vars(_ONLY_RE)["re"] = re
PACKAGE = Path(__file__).resolve().parents[2] / "src" / "torchyard"

_CONCERNED = re.compile(r"^\s*import re$|\b(?:pattern|regex)=r?['\"]|[A-Z]\.fullmatch\(", re.M)
# Functions of `re` that take a pattern, with the position of their flags.
_FUNCTIONS = {
    "compile": 1,
    "match": 2,
    "fullmatch": 2,
    "search": 2,
    "findall": 2,
    "finditer": 2,
    "split": 3,
    "sub": 4,
    "subn": 4,
}
_TRIED_ONCE = {"match", "fullmatch"}

SOURCES: Mapping[tuple[str, str], str] = {
    # (module, expression of the pattern): where its values come from, computed in the module.
    ("environments.images.dockerfile", "pattern"): "[p.pattern for p in (*_STEPS, *_PACKAGES)]",
    ("environments.names.image_names", "row.pattern"): "[row.pattern for row in TABLE]",
    ("environments.names.published", "refusal.pattern"): "[row.pattern for row in REFUSALS]",
    ("environments.packages.accelerators", "device"): "[tool[2] for tool in _TOOLS]",
    ("environments.packages.uv", "pattern"): "[p.pattern for p in _BLAMING]",
    ("worker.diagnosis.causes", "pattern"): "[rule.pattern for rule in RULES]",
}
COMPUTED: Mapping[tuple[str, str], str] = {
    # (module, function): patterns with a constant in them that the function computes.
    ("client.snapshots.ignore_rules", "_rule"): "[*map(_expression, ['a*b*c', '**/a/**/b*c'])]",
    ("client.snapshots.ignore_rules", "_any_of"): "['|'.join(map(_expression, ['a*b', '*c*']))]",
    ("client.snapshots.ignore_rules", "_character_class"): "[_character_class('[a-z]', 0)[0]]",
    ("base.lazy_routes", "__init__"): "[LazyRoutes(['/a/{b}'], list, '/{c}/d')._claimed.pattern]",
    ("environments.conda.conda_packages", "_free_scripts"): "[_shebang(b'/a/bin/python')]",
    ("environments.packages.pythons", "_beside"): "[_version_in('3.11')]",
    ("mlflow.search", "_any_characters"): "['a.b', 'a' * 50 + '.' * 50]",
}
USERS: Mapping[tuple[str, str], str] = {
    ("jobs.spec.retry", "_compile"): "only compiled here; jobs/spec/log_patterns.py searches with "
    "it, in a process that is ended in time",
}

ONCE = {"reader.take", "_end"}
"""Functions that try a pattern where a reader stands, and refuse the text if none fits."""
MATCHES = {"client.snapshots.ignore_rules", "mlflow.plugin_uris"}
"""Modules that compare names with the patterns of a table, from the beginning on."""


@dataclass(frozen=True)
class Expression:
    """A pattern of the package.

    `searches`: it is tried at every position of a text, not only at its beginning.
    """

    place: str
    pattern: str | bytes
    flags: int
    searches: bool

    def compiled(self) -> re.Pattern[Any]:
        return re.compile(self.pattern, self.flags)


def collect() -> tuple[list[Expression], list[str]]:
    """All expressions, and the places of patterns that could not be computed."""
    sources = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items() if _CONCERNED.search(text)}
    uses = _uses_by_name(trees)
    expressions: dict[tuple[str | bytes, int, bool], Expression] = {}
    unknown: list[str] = []
    for path, tree in trees.items():
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for call, function, name in _calls(tree):
            position = f"{path.relative_to(PACKAGE)}:{call.lineno}"
            if (module, function) in USERS:
                continue
            try:
                patterns, flags = _values(module, function, call)
            except (NameError, AttributeError, TypeError):
                unknown.append(f"{position}: {ast.unparse(call)}")
                continue
            searches = not _how(call, module, name, uses) <= _TRIED_ONCE
            for pattern in patterns:
                expression = Expression(position, pattern, flags, searches)
                expressions.setdefault((pattern, flags, searches), expression)
    return list(expressions.values()), unknown


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str, str]]:
    """Each call that takes a pattern, the function around it, the name that it is assigned to."""
    waiting: list[tuple[ast.AST, str, str]] = [(tree, "", "")]
    while waiting:
        node, function, name = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and _pattern(node) is not None:
            yield node, function, name
        target = _target(node)
        for child in ast.iter_child_nodes(node):
            waiting.append((child, function, target if child is getattr(node, "value", 0) else ""))


def _target(node: ast.AST) -> str:
    """The name that a statement assigns to."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return ""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")


def _pattern(call: ast.Call) -> ast.expr | None:
    function = call.func
    if (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in _FUNCTIONS
    ):
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        return call.args[0] if call.args else keywords["pattern"]
    for keyword in call.keywords:
        if keyword.arg in ("pattern", "regex") and isinstance(keyword.value, ast.Constant):
            return keyword.value
    return None


def _values(module: str, function: str, call: ast.Call) -> tuple[list[Any], int]:
    """The patterns of a call, and their flags."""
    expression = _pattern(call)
    assert expression is not None
    if isinstance(expression, ast.Constant):
        # `torchyard.train` can't be imported without torch.
        with contextlib.suppress(NameError):
            return [expression.value], _flags(call, _ONLY_RE)
    imported = importlib.import_module(f"torchyard.{module}")
    source = SOURCES.get((module, ast.unparse(expression))) or COMPUTED.get((module, function))
    if source is not None:
        return list(_computed(ast.parse(source, mode="eval").body, imported)), _flags(
            call, imported
        )
    return [_computed(expression, imported)], _flags(call, imported)


def _computed(expression: ast.expr, module: ModuleType) -> Any:
    code = compile(ast.fix_missing_locations(ast.Expression(expression)), "<pattern>", "eval")
    return eval(code, dict(vars(module)))


def _flags(call: ast.Call, module: ModuleType) -> int:
    position = _FUNCTIONS.get(call.func.attr, 99) if isinstance(call.func, ast.Attribute) else 99
    flags = [keyword.value for keyword in call.keywords if keyword.arg == "flags"]
    flags += call.args[position : position + 1]
    return int(_computed(flags[0], module)) if flags else 0


def _uses_by_name(trees: Mapping[Path, ast.AST]) -> dict[str, set[str]]:
    """The methods that are called of each name: private ones by module, others by name alone."""
    uses: dict[str, set[str]] = {}
    for path, tree in trees.items():
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _FUNCTIONS:
                of = node.value
                name = of.id if isinstance(of, ast.Name) else getattr(of, "attr", "")
                uses.setdefault(_key(module, name), set()).add(node.attr)
            # Passed to a function that tries it where it stands.
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ONCE:
                for argument in node.args:
                    if isinstance(argument, ast.Name):
                        uses.setdefault(_key(module, argument.id), set()).add("match")
    return uses


def _key(module: str, name: str) -> str:
    return f"{module}.{name}" if name.startswith("_") else name


def _how(call: ast.Call, module: str, name: str, uses: Mapping[str, set[str]]) -> set[str]:
    """The methods by which a pattern is used; `search` where that can't be told."""
    if isinstance(call.func, ast.Attribute) and call.func.attr != "compile":
        return {call.func.attr}
    if not name and module in MATCHES:
        return {"match"}
    return uses.get(_key(module, name), {"search"})
