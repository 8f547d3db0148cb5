"""What to do about a program that the shell did not find.

Owns: the installed program whose name is nearest.
Leaves: noticing that a program is missing to cause_rules.py and hidden_failures.py.
"""

from __future__ import annotations

import os

_SIMILARITY = 0.75
_MOST_PROGRAMS = 20_000


def advice(name: str, search_path: str) -> str:
    """The hint for a program that isn't on PATH; empty if none there has a similar name."""
    nearest = _nearest(name, search_path)
    return f"`{name}` does not exist on the node: did you mean `{nearest}`?" if nearest else ""


def _nearest(name: str, search_path: str) -> str:
    if "/" in name or not search_path:
        return ""
    import difflib  # Most jobs name programs that exist.

    names: dict[str, None] = {}
    for folder in search_path.split(os.pathsep):
        try:
            names.update(dict.fromkeys(os.listdir(folder or ".")))
        except OSError:
            continue
        if len(names) > _MOST_PROGRAMS:
            break
    # Of equally similar names, that of the folder that comes first.
    return next(iter(difflib.get_close_matches(name, names, 1, _SIMILARITY)), "")
