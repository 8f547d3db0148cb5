"""An optimizer that steps by the gradients of all ranks.

Owns: `DistributedOptimizer`.
Leaves: the reduction itself to collectives.py.
Always: a gradient is reduced once, when its last backward pass has made it; `step` waits for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from horovod.torch import processes
from horovod.torch.collectives import (
    Average,
    Handle,
    Sum,
    allreduce_async_,
    synchronize,
)
from horovod.torch.compression import Compression


class _Distributed:
    """Mixed in before the class of the optimizer that is wrapped."""

    _reducing: dict[torch.nn.Parameter, tuple[Handle, Any, torch.Tensor]]

    def _distribute(
        self, compression: Any, passes: int, op: str, predivide: float, names: list[str]
    ) -> None:
        self._compression, self._passes, self._op = compression, passes, op
        self._predivide = predivide
        self._parameter_names = names
        self._reducing = {}
        self._left: dict[torch.nn.Parameter, int] = {}
        self._synchronized = False
        self._may_synchronize = True
        for parameter in self._all():
            if parameter.requires_grad and processes.size() > 1:
                self._left[parameter] = passes
                self._call_when_made(parameter)

    def synchronize(self) -> None:
        """Wait until every gradient is that of all ranks."""
        for parameter, left in list(self._left.items()):
            # A parameter without a gradient here may have one on another rank.
            if parameter not in self._reducing and left:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self._reduce(parameter)
        for parameter, (handle, context, small) in self._reducing.items():
            synchronize(handle)
            full = self._compression.decompress(small, context)
            if full is not parameter.grad:
                parameter.grad.copy_(full)
            self._left[parameter] = self._passes
        self._reducing.clear()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """`step` inside does not wait: `synchronize` was called, as for clipping."""
        self._may_synchronize = False
        try:
            yield
        finally:
            self._may_synchronize = True

    def step(self, closure: Any = None) -> Any:
        if self._may_synchronize:
            self.synchronize()
        self._synchronized = False
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, *arguments: Any, **more: Any) -> Any:
        if self._reducing:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize()"
            )
        return super().zero_grad(*arguments, **more)  # type: ignore[misc]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes add up before the ranks' gradients are reduced."""
        self._passes = passes
        self._left = dict.fromkeys(self._left, passes)

    def _call_when_made(self, parameter: torch.nn.Parameter) -> None:
        """Have `_made` called after each gradient of the parameter."""
        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            parameter.register_post_accumulate_grad_hook(self._made)
            return
        # Before torch 2.1: the node of the graph that adds to `grad`, which has to be kept alive.
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: self._made(parameter))
        self._accumulating = [*getattr(self, "_accumulating", ()), node]

    def _made(self, parameter: torch.nn.Parameter) -> None:
        if self._left[parameter] <= 0 or parameter in self._reducing:
            raise AssertionError(
                "gradients were computed more than backward_passes_per_step times before "
                "`step`: raise it in DistributedOptimizer"
            )
        self._left[parameter] -= 1
        if not self._left[parameter]:
            self._reduce(parameter)

    def _reduce(self, parameter: torch.nn.Parameter) -> None:
        assert parameter.grad is not None
        before, after = 1.0, 1.0
        if self._predivide != 1.0:
            before, after = 1.0 / self._predivide, self._predivide / processes.size()
        small, context = self._compression.compress(parameter.grad)
        op = Sum if self._predivide != 1.0 else self._op
        handle = allreduce_async_(small, op=op, prescale_factor=before, postscale_factor=after)
        self._reducing[parameter] = (handle, context, small)

    def _all(self) -> Iterator[torch.nn.Parameter]:
        for group in self.param_groups:  # type: ignore[attr-defined]
            yield from group["params"]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: str = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: Any = None,
) -> torch.optim.Optimizer:
    """The optimizer, of a class below its own, that reduces gradients over all ranks first.

    Args:
        num_groups, groups, sparse_as_dense: how Horovod packs what it sends; taken, no matter here.

    Raises:
        ValueError: two parameters have one name, or a factor is given with another `op`.
        NotImplementedError: Adasum or process sets.
    """
    if process_set is not None:
        raise NotImplementedError("process sets are not in torchyard's layer of horovod.torch")
    if op not in (Average, Sum):
        raise NotImplementedError(f"op={op} is not in torchyard's layer of horovod.torch")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    names = [name for name, _ in named_parameters or ()]
    if len(set(names)) != len(names):
        raise ValueError("parameter names in named_parameters must be unique")
    kind = type(optimizer)
    made = type(kind.__name__, (_Distributed, kind), {})
    # The same object stays what it was: schedulers and scalers that hold it go on working.
    optimizer.__class__ = made
    wrapped: Any = optimizer
    wrapped._distribute(compression, backward_passes_per_step, op, gradient_predivide_factor, names)
    return optimizer
