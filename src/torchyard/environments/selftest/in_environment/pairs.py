"""Print what packages import of each other and don't find: one line of JSON.

Owns: the pairs of packages of which one's metadata name the other, also for an extra; the names
that the first imports of the second as its modules are read, without condition.
Leaves: one-step tests of whole components to the modules beside it.
Always: runs in the environment's own Python with the standard library; of each pair the second
package is imported, never the first.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator

_TESTS = re.compile(r"tests?|testing|testclient\.py|conftest\.py|test_.*|.*_test\.py")
# In the names of files that are for them.
_OTHER_SYSTEMS = {"macos", "osx", "darwin", "windows", "win32"}
_NAME = re.compile(r"[\w.-]+")
# Modules of Python on Windows, which packages for several systems import in files of their own.
_OF_WINDOWS = ("winreg", "_winreg", "msvcrt")
# Says first that it has moved, to a module that no traitlets of its time has; nobody imports it.
_DEAD = ("IPython/utils/eventful.py",)


def imported(source: str, packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(module, name) of each import from `packages` in the body of a module; no name for a module.

    What stands below `if`, `try` or in a function may be for another version: it is passed over,
    as is a module that this Python can't read.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in packages:
                    yield alias.name, ""
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.partition(".")[0] in packages:
                for alias in node.names:
                    yield node.module, "" if alias.name == "*" else alias.name


def fault(module: str, name: str) -> str:
    """Why an import fails; empty where it works."""
    try:
        namespace = importlib.import_module(module)
        if name and not hasattr(namespace, name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ModuleNotFoundError:
                return f"cannot import name '{name}' from '{module}'"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def uses() -> dict[tuple[str, str], dict[tuple[str, str], str]]:
    """By (package, other package): (module, name) of each import, and a file that has it."""
    # The program beside this one, whose folder is first in the path.
    distributions = importlib.import_module("distributions")
    normal, modules_of = distributions.normal, distributions.modules_of
    packages = {
        normal(distribution.metadata["Name"]): distribution
        for distribution in importlib.metadata.distributions()
    }
    modules = {name: modules_of(distribution) for name, distribution in packages.items()}
    owners = Counter(module for names in modules.values() for module in names)
    pairs: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for name, distribution in sorted(packages.items()):
        requires = (_NAME.match(line) for line in distribution.requires or ())
        required = {normal(match[0]) for match in requires if match} & set(packages) - {name}
        owner = {
            module: other for other in sorted(required) for module in modules[other]
            if owners[module] == 1
        }  # fmt: skip
        for file, source in _sources(distribution):
            for module, imported_name in imported(source, owner):
                pair = name, owner[module.partition(".")[0]]
                pairs.setdefault(pair, {}).setdefault((module, imported_name), file)
    return pairs


def _sources(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, str]]:
    """The modules of its packages, without tests and those for other systems."""
    files = distribution.files or []
    folders = {file.parent for file in files if file.name == "__init__.py"}
    for file in files:
        is_module = file.suffix == ".py" and (file.parent in folders or len(file.parts) == 1)
        if not is_module or any(_TESTS.fullmatch(part) for part in file.parts):
            continue
        if _OTHER_SYSTEMS & set(file.stem.split("_")) or str(file) in _DEAD:
            continue
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def main() -> None:
    warnings.simplefilter("ignore")
    pairs = uses()
    outcomes: dict[tuple[str, str], str] = {}
    faults = []
    for (package, other), imports in sorted(pairs.items()):
        for (module, name), file in sorted(imports.items()):
            if name in _OF_WINDOWS:
                continue
            if (module, name) not in outcomes:
                outcomes[module, name] = fault(module, name)
            if outcomes[module, name]:
                faults.append(f"{package} can't use {other}: {file}: {outcomes[module, name]}")
    # The last line: packages print as they are imported.
    print(json.dumps({"pairs": len(pairs), "faults": faults}), flush=True)


if __name__ == "__main__":
    main()
