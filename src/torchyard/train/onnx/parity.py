"""Compare what a module and its ONNX file answer.

Owns: running the file with ONNX Runtime, the differences, the table of them.
Leaves: the inputs to exporting.
Always: a difference is the absolute one, or relative to the largest value of the output where that
is above 1; NaN on one side only is an infinite difference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchyard.train.onnx.tensors import Tensors

TOLERANCE = 1e-3
_TIMED_S, _TIMED_MOST = 1.0, 20

Outputs = list[torch.Tensor]
Run = Callable[[Tensors], Outputs]


@dataclass(frozen=True)
class Difference:
    """How far one output is off for one input.

    `inputs` says which: `example, batch 3`. `worst_at` is the index of the largest difference.
    `agreement` is the share of rows whose largest value has the same place; None where the output
    has no classes.
    """

    inputs: str
    output: str
    maximum: float
    mean: float
    worst_at: tuple[int, ...] = ()
    agreement: float | None = None


class OnnxSession:
    """An ONNX file, loaded by ONNX Runtime on the CPU."""

    def __init__(self, file: Path, level: str = "all") -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # Between calls its threads leave the processors to the module, which is timed beside it.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = {
            "none": levels.ORT_DISABLE_ALL,
            "all": levels.ORT_ENABLE_ALL,
        }[level]
        self._session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self.inputs: list[Any] = self._session.get_inputs()
        self.outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, tensors: Tensors) -> Outputs:
        """The outputs, in the file's order."""
        names = {entry.name for entry in self.inputs}
        arrays = {name: value.numpy() for name, value in tensors.items() if name in names}
        answers = self._session.run(None, arrays)
        return [torch.as_tensor(answer) for answer in answers]


def compare(
    inputs: str, names: Sequence[str], expected: Outputs, actual: Outputs
) -> list[Difference]:
    """The difference of each output."""
    return [
        _difference(inputs, name, reference, got)
        for name, reference, got in zip(names, expected, actual, strict=True)
    ]


def _difference(inputs: str, name: str, expected: torch.Tensor, actual: torch.Tensor) -> Difference:
    if tuple(expected.shape) != tuple(actual.shape):
        return Difference(inputs, name, math.inf, math.inf)
    if not expected.numel():
        return Difference(inputs, name, 0.0, 0.0)
    reference, got = expected.double(), actual.double()
    same = (reference == got) | (reference.isnan() & got.isnan())
    off = (reference - got).abs().masked_fill(same, 0.0)
    off = torch.where(off.isnan(), torch.full_like(off, math.inf), off)
    finite = reference[reference.isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    off = off / scale
    flat_index = int(off.argmax())
    worst_at = tuple(
        int(index) for index in torch.unravel_index(torch.tensor(flat_index), off.shape)
    )
    agreement = None
    if expected.is_floating_point() and expected.dim() >= 2 and expected.shape[-1] > 1:
        agreement = float((reference.argmax(-1) == got.argmax(-1)).double().mean())
    return Difference(inputs, name, float(off.max()), float(off.mean()), worst_at, agreement)


def table(differences: Sequence[Difference]) -> str:
    """One line a difference, as the job prints them."""
    rows = [("INPUTS", "OUTPUT", "MAX DIFFERENCE", "MEAN DIFFERENCE", "SAME ARGMAX")]
    for entry in differences:
        same = "" if entry.agreement is None else f"{entry.agreement:.2%}"
        rows.append((entry.inputs, entry.output, f"{entry.maximum:.2e}", f"{entry.mean:.2e}", same))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def worst(differences: Sequence[Difference]) -> Difference:
    return max(differences, key=lambda entry: entry.maximum)


def fastest_ms(run: Run, tensors: Tensors, now: Callable[[], float] = time.perf_counter) -> float:
    """The time of the fastest call, of as many as fit into a second: those that other work on the
    machine held up say nothing of the model.
    """
    run(tensors)
    times: list[float] = []
    until = now() + _TIMED_S
    while len(times) < 3 or (len(times) < _TIMED_MOST and now() < until):
        before = now()
        run(tensors)
        times.append((now() - before) * 1000)
    return min(times)
