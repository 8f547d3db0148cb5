"""Print what an environment holds: each distribution with its version and its modules.

Owns: reading the metadata on disk; which modules a distribution brings; whether Python finds them.
Always: runs in the environment's own Python with the standard library; modules are found, not
imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys

_SKIPPED = {"__pycache__", "bin", "include", "lib", "share", "etc", ".."}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def modules_of(distribution: importlib.metadata.Distribution) -> list[str]:
    """The top-level modules among its files."""
    names = set()
    for file in distribution.files or ():
        top = file.parts[0]
        if top in _SKIPPED or top.endswith((".dist-info", ".egg-info", ".data", ".pth", ".libs")):
            continue
        if len(file.parts) > 1:
            # A folder that holds data alone is not a module.
            is_module = file.suffix in (".py", ".so")
            name = top
        else:
            is_module = file.suffix in (".py", ".so", ".pyd")
            name = top.partition(".")[0]
        if is_module and name.isidentifier():
            names.add(name)
    return sorted(names)


def is_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def main() -> None:
    sys.path[:] = [path for path in sys.path if path != sys.path[0] or not path]
    entries = {}
    for distribution in importlib.metadata.distributions():
        modules = modules_of(distribution)
        entries[normal(distribution.metadata["Name"])] = {
            "version": distribution.version,
            "modules": modules,
            "missing": [module for module in modules if not is_found(module)],
        }
    print(json.dumps(dict(sorted(entries.items()))))


if __name__ == "__main__":
    main()
