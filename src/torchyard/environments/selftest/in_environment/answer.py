"""Print what an environment answers about itself: `python answer.py [VARIABLE…]`.

Owns: asking importlib.metadata for every package, the modules torch and platform, the variables.
Leaves: comparing the answer with a label to environments/version_labels.py.
Always: runs in the environment's own Python with the standard library and its torch; jobs that
validate an environment ask with it, too.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from typing import Any


def answer(variables: Sequence[str]) -> dict[str, Any]:
    """`packages`, `python`, `machine`, `variables` (of these names, the set ones), and where torch
    is installed `torch` and `cuda`, which is empty for a build without.
    """
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            # Python imports the first of two.
            packages.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    return {
        "packages": dict(sorted(packages.items())),
        "python": platform.python_version(),
        "machine": platform.machine().lower(),
        "variables": {name: os.environ[name] for name in variables if name in os.environ},
        **(_torch() if importlib.util.find_spec("torch") is not None else {}),
    }


def _torch() -> dict[str, Any]:
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        return {"torch": f"not importable ({type(error).__name__}: {error})"}
    return {"torch": str(torch.__version__), "cuda": torch.version.cuda or ""}


if __name__ == "__main__":
    print(json.dumps(answer(sys.argv[1:])))
