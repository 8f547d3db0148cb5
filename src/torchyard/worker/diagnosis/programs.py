"""What to do about a program that the shell did not find.

Owns: the installed program whose name is nearest.
Leaves: noticing that a program is missing to cause_rules.py and hidden_failures.py.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

_SIMILARITY = 0.75
_MOST_PROGRAMS = 20_000


def advice(name: str, search_path: str) -> str:
    """The hint for a program that isn't on PATH; empty if none there has a similar name."""
    nearest = _nearest(name, search_path)
    if nearest == name:
        return ""
    return f"`{name}` does not exist on the node: did you mean `{nearest}`?" if nearest else ""


def missing(words: Sequence[str], search_path: str) -> str:
    """The program that a command with exit code 127 lacks: in `env A=1 pyhton x` not `env`."""
    if shutil.which(words[0], path=search_path) is None:
        return words[0]
    others = (word for word in words[1:] if word.isidentifier())
    return next((word for word in others if shutil.which(word, path=search_path) is None), words[0])


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
