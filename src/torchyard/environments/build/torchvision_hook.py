"""Make PyPI's torchvision import beside a CPU build of torch.

PyPI's wheel is built for CUDA: its compiled operators can't load beside a CPU torch, and
`import torchvision` then fails with `operator torchvision::nms does not exist`, because it
registers shapes for operators that were never defined. Defining their schemas first is enough
for models, transforms and datasets; the operators themselves still raise when called.

Owns: the text of the hook, when an environment needs it, putting it there.
Leaves: what is in the lock to packages/lock.py.
Always: the hook costs nothing until torchvision is imported, and imports nothing by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_MODULE = "_torchyard_torchvision"

# Runs in the environment's own Python, which may be old.
_HOOK = '''\
"""Define torchvision's operators before it is imported, since its own can't load here."""

import sys


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(_Finder)
            _define()
        return None


def _define():
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for schema in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    ):
        library.define(schema)
    _define.kept = library


sys.meta_path.insert(0, _Finder)
'''


def needed(pins: Mapping[str, str]) -> bool:
    """Whether the lock pairs a CPU torch with a torchvision that was not built for it."""
    torch, vision = pins.get("torch", ""), pins.get("torchvision", "")
    return "cpu" in torch and bool(vision) and "cpu" not in vision


def put(site_packages: Path) -> None:
    """Write the hook into an environment."""
    (site_packages / f"{_MODULE}.py").write_text(_HOOK, encoding="utf-8")
    (site_packages / "torchyard_torchvision.pth").write_text(
        f"import {_MODULE}\n", encoding="utf-8"
    )
