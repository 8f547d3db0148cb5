"""Whether a module's weights are those of the call before.

Owns: the comparison: where they lie, their versions, and some values of each.
Leaves: what is done about it to inference.
Always: cheap beside a call. torch counts changes, except those through `.data`, as optimizers and
averages of weights write them: therefore values are compared as well.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_ort import tensors

# Of each tensor; a step of an optimizer changes nearly every value.
_VALUES = 4
_READ = (torch.float32, torch.float64, torch.float16)


class Weights:
    """Those of one module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._mark: Any = None
        self._views: list[torch.Tensor] = []
        self._values: torch.Tensor | None = None

    def are_new(self) -> bool:
        """Whether they differ from those of the last call of this."""
        states = list(tensors.states(self._module))
        if any(state.is_inference() for state in states):
            return True  # torch doesn't count their changes.
        mark = [(state.data_ptr(), state._version) for state in states]
        if mark != self._mark:
            self._mark = mark
            self._views = _views(states)
            self._values = self._read()
            return True
        values = self._read()
        if values is None or (self._values is not None and torch.equal(values, self._values)):
            return False
        self._values = values
        return True

    def _read(self) -> torch.Tensor | None:
        return torch.cat(self._views) if self._views else None


def _views(states: list[torch.Tensor]) -> list[torch.Tensor]:
    """Those that can be read together; what lies on several devices is not answered anyway."""
    if len({state.device for state in states}) > 1:
        return []
    return [_some(state) for state in states if state.numel() and state.dtype in _READ]


def _some(state: torch.Tensor) -> torch.Tensor:
    """A view of a few values, from the first to the last."""
    flat = state.detach()
    if not flat.is_contiguous():
        flat = flat.as_strided((1,), (1,))  # Its first value alone: flattened, it were a copy.
    flat = flat.view(-1)
    step = max(1, (flat.numel() - 1) // (_VALUES - 1))
    return flat[::step][: _VALUES + 1]
