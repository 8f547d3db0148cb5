"""What to do about a program that the shell did not find.

Owns: the installed program whose name is nearest; what a job has in place of some others.
Leaves: noticing that a program is missing to cause_rules.py.
"""

from __future__ import annotations

import os
import shutil

_SIMILARITY = 0.75
_MOST_PROGRAMS = 20_000
_ACTIVE = "the job's environment is active already: leave it out"
# What scripts from other places begin with.
_IN_A_JOB = {
    "conda": _ACTIVE,
    "mamba": _ACTIVE,
    "micromamba": _ACTIVE,
    "module": "list what it loads in the job's environment",
    "srun": "`resources.instance_count` and `distribution` start a program on several nodes",
    "sudo": "a job can't become root: list packages in its environment",
}


def advice(name: str, search_path: str) -> str:
    """The hint for a program that isn't on PATH; empty if none there has a similar name, and a job
    has nothing in its place.
    """
    if name in _IN_A_JOB and shutil.which(name, path=search_path) is None:
        return f"`{name}` does not exist on the node; {_IN_A_JOB[name]}"
    nearest = _nearest(name, search_path)
    if nearest == name:
        return ""
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
