"""What every Python of a rank runs at its start where torch.save is intercepted: waits for torch.

Owns: noticing the import of torch.serialization.
Leaves: what becomes of torch.save to torchyard.train, which the job's environment lists.
Always: a Python that never imports torch only compares a few names; torch is never imported here;
without the rank's variable nothing is done. A reason why it can't be intercepted is said once on
stderr, and the script goes on with torch's own. Runs on Python 3.6 and later.
"""

import os
import sys

MYPY = False
if MYPY:
    from typing import Any

VARIABLE = "TORCHYARD_INTERCEPT"
_MODULE = "torch.serialization"
_IMPLEMENTATION = "torchyard.train.saved_files.interception"


class _Finder:
    """Comes first in `sys.meta_path`; answers for one module, once."""

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != _MODULE:
            return None
        sys.meta_path.remove(_Finder)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                break
        else:
            return None
        execute = getattr(spec.loader, "exec_module", None)
        if execute is None:
            return spec

        def execute_and_intercept(module: "Any") -> None:
            execute(module)
            _intercept(module)

        setattr(spec.loader, "exec_module", execute_and_intercept)  # noqa: B010
        return spec


def install() -> None:
    """Wait for torch, if this process belongs to such a rank."""
    if os.environ.get(VARIABLE) and _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def _intercept(module: "Any") -> None:
    try:
        __import__(_IMPLEMENTATION, fromlist=["install"]).install(module)
    except ImportError as error:
        _say(f"the environment has no `torchyard-train` that runs here ({error})")
    except Exception as error:
        _say(f"{type(error).__name__}: {error}")


def _say(reason: str) -> None:
    try:
        sys.stderr.write(f"[torchyard] torch.save is not intercepted: {reason}\n")
        sys.stderr.flush()
    except Exception:
        pass
