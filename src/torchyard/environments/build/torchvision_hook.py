"""Make PyPI's torchvision work beside a CPU build of torch.

PyPI's wheel is built for CUDA: its compiled operators can't load beside a CPU torch, and
`import torchvision` then fails with `operator torchvision::nms does not exist`, because it
registers shapes for operators that were never defined. Defining their schemas first is enough
for models, transforms and datasets. `nms`, which models that detect objects need, is given in
torch's own operators; `roi_align` has such a form in torchvision itself; the others
(`deform_conv2d`, `roi_pool`, reading pictures) still raise when called.

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
        if name == "torchvision" and not hasattr(_define, "kept"):
            _define()  # others may only ask where it is, before it is imported
        if name != "torchvision.ops.boxes":
            return None
        sys.meta_path.remove(_Finder)
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module._assert_has_ops = _assert_has_nms

        spec.loader.exec_module = exec_module
        return spec


def _define():
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for schema in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    ):
        library.define(schema)
    library.impl("nms", _nms, "CPU")
    _define.kept = library


def _nms(dets, scores, iou_threshold):
    """The boxes that overlap no better one by more, the best first, as torchvision's kernel."""
    import torch

    left, top, right, bottom = dets.unbind(1)
    areas = (right - left) * (bottom - top)
    order = torch.sort(scores, stable=True, descending=True)[1]
    kept = [order[:0]]
    while len(order):
        best, order = order[:1], order[1:]
        kept.append(best)
        width = torch.minimum(right[best], right[order]) - torch.maximum(left[best], left[order])
        height = torch.minimum(bottom[best], bottom[order]) - torch.maximum(top[best], top[order])
        overlap = width.clamp(min=0) * height.clamp(min=0)
        ratio = overlap / (areas[best] + areas[order] - overlap)
        order = order[~(ratio > iou_threshold)]
    return torch.cat(kept)


def _assert_has_nms() -> None:
    pass


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
