"""What ranks send one another.

Owns: Horovod's operations with their asynchronous, in-place and grouped forms.
Leaves: who is who to processes.py.
Always: a call without the suffix `_` changes none of its arguments; every rank makes the same
calls in the same order, as torch.distributed wants it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from horovod.torch import processes
from horovod.torch.compression import Compression

Average, Sum, Adasum, Min, Max, Product = (
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
)
_OPERATIONS = {
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}


@dataclass
class Handle:
    """An operation under way; `finish` makes its result."""

    work: Any
    finish: Callable[[], Any]


def poll(handle: Handle) -> bool:
    """Whether `synchronize` would return at once."""
    return handle.work is None or bool(handle.work.is_completed())


def synchronize(handle: Handle) -> Any:
    """Wait for an operation; returns its result."""
    if handle.work is not None:
        handle.work.wait()
        handle.work = None
    return handle.finish()


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> Handle:
    """Begin to reduce `tensor` over all ranks, in its place."""
    kind = _kind(average, op, process_set)
    with torch.no_grad():
        if prescale_factor != 1.0:
            tensor.mul_(prescale_factor)
        work = None
        if processes.size() > 1:
            work = dist.all_reduce(tensor, _OPERATIONS[kind], async_op=True)

    def finish() -> torch.Tensor:
        with torch.no_grad():
            if kind == Average:
                _divide(tensor, processes.size())
            if postscale_factor != 1.0:
                tensor.mul_(postscale_factor)
        return tensor

    return Handle(work, finish)


def allreduce_async(tensor: torch.Tensor, *arguments: Any, **more: Any) -> Handle:
    """As `allreduce_async_`, of a copy."""
    return allreduce_async_(tensor.detach().clone(), *arguments, **more)


def allreduce_(tensor: torch.Tensor, *arguments: Any, **more: Any) -> torch.Tensor:
    """Reduce `tensor` over all ranks, in its place."""
    result: torch.Tensor = synchronize(allreduce_async_(tensor, *arguments, **more))
    return result


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: str | None = None,
    **more: Any,
) -> torch.Tensor:
    """`tensor` reduced over all ranks; the average unless `op` says another."""
    if tensor.requires_grad:
        result: torch.Tensor = _Reduced.apply(tensor, average, compression, op, more)
        return result
    small, context = compression.compress(tensor)
    small = small.clone() if small is tensor else small
    reduced = allreduce_(small, average=average, name=name, op=op, **more)
    shrunk: torch.Tensor = compression.decompress(reduced, context)
    return shrunk


def grouped_allreduce_(tensors: Sequence[torch.Tensor], **more: Any) -> list[torch.Tensor]:
    """Reduce several tensors, each in its place."""
    handles = [allreduce_async_(tensor, **more) for tensor in tensors]
    return [synchronize(handle) for handle in handles]


def grouped_allreduce(tensors: Sequence[torch.Tensor], **more: Any) -> list[torch.Tensor]:
    """As `grouped_allreduce_`, of copies."""
    return grouped_allreduce_([tensor.detach().clone() for tensor in tensors], **more)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: Any = None
) -> Handle:
    """Begin `allgather`."""
    result = allgather(tensor, name, process_set)
    return Handle(None, lambda: result)


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: Any = None
) -> torch.Tensor:
    """The tensors of all ranks behind one another; they may differ in their first dimension."""
    _no_sets(process_set)
    if processes.size() == 1:
        return tensor.detach().clone()
    if tensor.dim() == 0:
        tensor = tensor.reshape(1)
    lengths = [torch.zeros(1, dtype=torch.int64, device=tensor.device) for _ in _ranks()]
    dist.all_gather(lengths, torch.tensor([tensor.shape[0]], device=tensor.device))
    counts = [int(length) for length in lengths]
    longest = max(counts)
    padded = tensor.new_zeros((longest, *tensor.shape[1:]))
    padded[: tensor.shape[0]] = tensor.detach()
    gathered = [torch.empty_like(padded) for _ in _ranks()]
    dist.all_gather(gathered, padded)
    return torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any = None
) -> Handle:
    """Begin to replace `tensor` by that of `root_rank`."""
    _no_sets(process_set)
    work = None
    if processes.size() > 1:
        work = dist.broadcast(tensor.data, root_rank, async_op=True)
    return Handle(work, lambda: tensor)


def broadcast_async(tensor: torch.Tensor, root_rank: int, *arguments: Any, **more: Any) -> Handle:
    """As `broadcast_async_`, into a copy."""
    return broadcast_async_(tensor.detach().clone(), root_rank, *arguments, **more)


def broadcast_(tensor: torch.Tensor, root_rank: int, *arguments: Any, **more: Any) -> torch.Tensor:
    """Replace `tensor` by that of `root_rank`."""
    result: torch.Tensor = synchronize(broadcast_async_(tensor, root_rank, *arguments, **more))
    return result


def broadcast(tensor: torch.Tensor, root_rank: int, *arguments: Any, **more: Any) -> torch.Tensor:
    """The tensor of `root_rank`."""
    return broadcast_(tensor.detach().clone(), root_rank, *arguments, **more)


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: Any = None,
) -> Any:
    """Send a part of `tensor` to each rank; with `splits` also how much came from each."""
    _no_sets(process_set)
    ranks = processes.size()
    sizes = None if splits is None else [int(count) for count in splits]
    if sizes is None and tensor.shape[0] % ranks:
        raise ValueError("alltoall: the first dimension is not a multiple of the number of ranks")
    counts = sizes or [tensor.shape[0] // ranks] * ranks
    # Gloo knows no all-to-all of unequal parts: everybody gets all and takes its own part.
    everything = allgather(tensor)
    every_count = allgather(torch.tensor([counts], device=tensor.device))
    here, start, parts = processes.rank(), 0, []
    for sender in _ranks():
        sent = every_count[sender].tolist()
        before = sum(sent[:here])
        parts.append(everything[start + before : start + before + sent[here]])
        start += sum(sent)
    received = torch.cat(parts)
    if splits is None:
        return received
    return received, every_count[:, here].to(torch.int32).cpu()


def reducescatter(
    tensor: torch.Tensor, name: str | None = None, op: str | None = None, **more: Any
) -> torch.Tensor:
    """This rank's part of the sum, or average, along the first dimension."""
    reduced = allreduce(tensor, name=name, op=op, **more)
    parts = torch.tensor_split(reduced, processes.size())
    return parts[processes.rank()].clone()


def barrier(process_set: Any = None) -> None:
    """Wait for all ranks."""
    _no_sets(process_set)
    if processes.size() > 1:
        dist.barrier()


def join(device: int = -1) -> int:
    """Wait for all ranks; the last rank's number.

    Unlike Horovod's it does not answer for a rank that is done: torch's collectives need
    every rank in each call, so a rank with fewer batches has to be given as many.
    """
    barrier()
    return processes.size() - 1


def broadcast_object(
    value: Any = None, root_rank: int = 0, name: str | None = None, process_set: Any = None
) -> Any:
    """Whatever pickles, of `root_rank`."""
    _no_sets(process_set)
    if processes.size() == 1:
        return value
    boxes = [value]
    dist.broadcast_object_list(boxes, root_rank, device=_device())
    return boxes[0]


def allgather_object(value: Any, name: str | None = None, process_set: Any = None) -> list[Any]:
    """Whatever pickles, of every rank."""
    _no_sets(process_set)
    file = io.BytesIO()
    torch.save(value, file)
    written = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8).to(_device())
    sizes = allgather(torch.tensor([written.numel()], device=written.device)).tolist()
    everything = allgather(written).cpu()
    values, start = [], 0
    for count in sizes:
        piece = everything[start : start + count].numpy().tobytes()
        values.append(torch.load(io.BytesIO(piece), weights_only=False))
        start += count
    return values


class _Reduced(torch.autograd.Function):
    """The gradient of a reduction is the same reduction of the gradient."""

    @staticmethod
    def forward(
        context: Any, tensor: torch.Tensor, average: Any, compression: Any, op: Any, more: Any
    ) -> torch.Tensor:
        context.asked = (average, compression, op, more)
        return allreduce(tensor.detach(), average=average, compression=compression, op=op, **more)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        average, compression, op, more = context.asked
        reduced = allreduce(
            gradient.detach(), average=average, compression=compression, op=op, **more
        )
        return reduced, None, None, None, None


def _kind(average: bool | None, op: str | None, process_set: Any) -> str:
    _no_sets(process_set)
    if average is not None and op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    kind = op if op is not None else Sum if average is False else Average
    if kind not in _OPERATIONS:
        raise NotImplementedError(f"op={kind} is not in torchyard's layer of horovod.torch")
    return kind


def _divide(tensor: torch.Tensor, by: int) -> None:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.div_(by)
    else:
        tensor.floor_divide_(by)


def _no_sets(process_set: Any) -> None:
    if process_set is not None:
        raise NotImplementedError("process sets are not in torchyard's layer of horovod.torch")


def _ranks() -> range:
    return range(processes.size())


def _device() -> torch.device:
    backend = dist.get_backend() if dist.is_initialized() else "gloo"
    return (
        torch.device("cuda", torch.cuda.current_device())
        if backend == "nccl"
        else torch.device("cpu")
    )
