"""torchvision of PyPI beside a CPU build of torch: what its compiled operators would have done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.environments.build import torchvision_hook

pytestmark = pytest.mark.torch

# What torchvision 0.28 does where it can't load its operators.
_BOXES = """
import torch


def _assert_has_ops():
    raise RuntimeError("Couldn't load custom C++ ops")


def nms(boxes, scores, iou_threshold):
    _assert_has_ops()
    return torch.ops.torchvision.nms(boxes, scores, iou_threshold)
"""

_PROGRAM = """
import _torchyard_torchvision
import importlib.util
import torch
assert importlib.util.find_spec("torchvision") is not None  # transformers asks so
from torchvision.ops.boxes import nms


def one_by_one(boxes, scores, limit):
    kept = []
    for index in sorted(range(len(scores)), key=lambda index: -scores[index]):
        if all(overlap(boxes[index], boxes[other]) <= limit for other in kept):
            kept.append(index)
    return kept


def overlap(one, two):
    sides = [min(one[at + 2], two[at + 2]) - max(one[at], two[at]) for at in (0, 1)]
    shared = max(sides[0], 0) * max(sides[1], 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, two)]
    return shared / (sum(areas) - shared)


assert nms(torch.zeros(0, 4), torch.zeros(0), 0.5).tolist() == []
generator, kept = torch.Generator().manual_seed(7), 0
for limit in (0.0, 0.3, 0.5, 0.9):
    corners = torch.rand(200, 2, generator=generator, dtype=torch.float64) * 20
    sizes = torch.rand(200, 2, generator=generator, dtype=torch.float64) * 8 + 1
    boxes, scores = torch.cat([corners, corners + sizes], 1), torch.rand(200, generator=generator)
    scores[50:60] = 0.5  # of equal ones the first stays first
    answer = nms(boxes, scores.double(), limit)
    assert answer.dtype is torch.int64
    assert answer.tolist() == one_by_one(boxes.tolist(), scores.tolist(), limit), limit
    kept += len(answer)
print(kept)
"""


def test_boxes_that_overlap_a_better_one_go(tmp_path: Path) -> None:
    torchvision_hook.put(tmp_path)
    package = tmp_path / "torchvision" / "ops"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "boxes.py").write_text(_BOXES)
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert 4 < int(ended.stdout) < 800
