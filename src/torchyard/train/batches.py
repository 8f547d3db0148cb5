"""Batches that go on at the same sample on any number of ranks.

Owns: the order of an epoch's samples, which of them a rank gets at each step, the batch-size rule.
Leaves: the position to loop, which saves it; accumulation of gradients to the script.
Always: every sample of an epoch is in one batch of one rank, whatever the number of ranks was
meanwhile, but for fewer than the number of ranks at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
import torch.distributed as dist

from torchyard.train.checkpoint.errors import CheckpointError


class Batches:
    """Indices of this rank's samples, batch by batch.

        loader = DataLoader(data, batch_sampler=Batches(data, total=64))

    `total` keeps the number of samples of a step over all ranks, so that with fewer ranks each
    batch is larger; `per_rank` keeps that of a rank, so that a step has fewer.
    """

    def __init__(
        self,
        data: Sized,
        *,
        total: int | None = None,
        per_rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        """
        Args:
            data: as long as there are samples.
            seed: with the epoch's number it gives the order; the same on every rank.

        Raises:
            CheckpointError: not exactly one of `total` and `per_rank` is a positive integer, or
                `total` has no sample for some rank.
        """
        sizes = [size for size in (total, per_rank) if size is not None]
        if len(sizes) != 1 or not isinstance(sizes[0], int) or sizes[0] < 1:
            raise CheckpointError(
                f"Batches needs one of `total` and `per_rank`, a positive integer, not "
                f"total={total!r} and per_rank={per_rank!r}"
            )
        self._count = len(data)
        self._total, self._per_rank = total, per_rank
        self._shuffle, self._seed = shuffle, seed
        self._epoch = self._position = 0
        self._check_total()

    @property
    def step_samples(self) -> int:
        """How many samples a step has over all ranks; the last one of an epoch may have fewer."""
        if self._total is not None:
            return self._total
        assert self._per_rank is not None
        return self._per_rank * _ranks()[1]

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def set_position(self, samples: int) -> None:
        """Begin after so many samples of the epoch, of all ranks together."""
        self._position = samples

    def after_step(self, samples: int) -> int:
        """The position after a step that began at the position `samples`."""
        return min(self._count, samples + self.step_samples)

    def __iter__(self) -> Iterator[list[int]]:
        self._check_total()
        rank, ranks = _ranks()
        order, size = self._order(), self.step_samples
        for start in range(self._position, self._count, size):
            samples = order[start : start + size]
            # Ranks wait for each other: all have a sample, or none has.
            if len(samples) >= ranks:
                yield samples[rank::ranks]

    def __len__(self) -> int:
        """How many batches are left."""
        return self.steps_after(self._position)

    def steps_after(self, samples: int) -> int:
        """How many steps of the epoch are left after so many samples."""
        steps, rest = divmod(max(0, self._count - samples), self.step_samples)
        return steps + (rest >= _ranks()[1])

    def _order(self) -> list[int]:
        if not self._shuffle:
            return list(range(self._count))
        generator = torch.Generator()
        generator.manual_seed(self._seed + self._epoch)
        order: list[int] = torch.randperm(self._count, generator=generator).tolist()
        return order

    def _check_total(self) -> None:
        ranks = _ranks()[1]
        if self._total is not None and self._total < ranks:
            raise CheckpointError(
                f"total={self._total} has no sample for some of {ranks} ranks: use a larger one, "
                "or `per_rank`"
            )


def _ranks() -> tuple[int, int]:
    """This rank, and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
