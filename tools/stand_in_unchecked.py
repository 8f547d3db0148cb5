"""Let libraries take data sets whose checksums are not those of the real files.

Put beside a `.pth` file that imports it, it runs at the start of a Python: of a notebook that has
`unchecked` in notebooks.yml, and of its jobs' environment.

Owns: the checks of Keras, torchvision and torch.hub; `np.float`, which scripts of those years use.
Leaves: making the files to stand_in_data.py.
Always: nothing else of the libraries changes; a file that is missing stays missing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_CHECKS: dict[str, str] = {
    "torchvision.datasets.utils": "check_integrity",
    "keras.src.utils.file_utils": "validate_file",
    "keras.src.utils.data_utils": "validate_file",
    "keras.utils.data_utils": "validate_file",
    "tf_keras.src.utils.data_utils": "validate_file",
}


def _is_there(path: Any, *checksum: Any, **options: Any) -> bool:
    return os.path.isfile(path)


# The names of files that begin with a hash there; NumPy removed its alias in 1.24.
_VALUES: dict[str, tuple[str, Any]] = {
    "torch.hub": ("HASH_REGEX", re.compile("(?!)")),
    "numpy": ("float", float),
}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _CHECKS and name not in _VALUES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _patch(spec.loader, *_VALUES.get(name, (_CHECKS.get(name, ""), _is_there)))
        return spec


def _patch(loader: Any, attribute: str, value: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        if attribute in vars(module) or module.__name__ == "numpy":
            setattr(module, attribute, value)

    loader.exec_module = exec_module


sys.meta_path.insert(0, _Finder())
