"""Do the one-step test of a component: `python step.py NAME`, in an empty folder.

Owns: finding the step by its name, the line of JSON on standard output that tells its result.
Leaves: the steps to the modules beside it.
Always: runs in the environment's own Python, with this folder first in the path; a step that fails
ends with a traceback and exit code 1.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable

MODULES = ("torch_steps", "scale_steps", "onnx_steps", "tool_steps", "azure_steps")


def find(name: str) -> Callable[[], str]:
    """The step of that name: a function that returns what it saw, in a few words."""
    for module in MODULES:
        step: Callable[[], str] | None = getattr(importlib.import_module(module), name, None)
        if step is not None:
            return step
    raise SystemExit(f"error: no step is called `{name}`")


def main() -> None:
    warnings.simplefilter("ignore")
    result = find(sys.argv[1])()
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main()
