"""Which ranks share experts, and which hold copies of them.

Owns: the process groups of a grid, and a rank's place in them.
Leaves: sending to moe, averaging gradients to utils.
Always: `expert_parallel_group_size` neighbouring ranks hold all experts between them; ranks of the
same place in their groups are replicas. Every rank makes the same grid.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist


class DistributionGrid:
    """The groups of a run. Without sizes: one rank, or each rank with all experts."""

    def __init__(
        self,
        data_parallel_group_size: int | None = None,
        expert_parallel_group_size: int | None = None,
        expert_parallel_replica_group_size: int | None = None,
        expert_slicing_group_size: int | None = None,
        num_of_nodes_in_pipeline: int | None = None,
        num_of_pipeline_stage: int | None = None,
        options: Any = None,
    ) -> None:
        """
        Raises:
            NotImplementedError: slices of experts or a pipeline are asked for.
            ValueError: the sizes are not those of the ranks there are.
        """
        for name, value in (
            ("expert_slicing_group_size", expert_slicing_group_size),
            ("num_of_nodes_in_pipeline", num_of_nodes_in_pipeline),
            ("num_of_pipeline_stage", num_of_pipeline_stage),
        ):
            if value is not None and value > 1:
                raise NotImplementedError(f"torchyard's ort_moe has no `{name}`")
        self._owns_group = False
        ranks = (expert_parallel_group_size or 1) * (expert_parallel_replica_group_size or 1)
        sizes = (data_parallel_group_size, expert_parallel_group_size,
                 expert_parallel_replica_group_size)  # fmt: skip
        if any(size is not None and size > 1 for size in sizes):
            self._join()
        world = dist.get_world_size() if _is_grouped() else 1
        if expert_parallel_group_size is None and expert_parallel_replica_group_size is None:
            ranks = data_parallel_group_size or world
        if ranks != world:
            raise ValueError(
                f"a grid of {ranks} ranks does not fit {world}: expert_parallel_group_size * "
                "expert_parallel_replica_group_size, or data_parallel_group_size, must be the "
                "number of ranks"
            )
        self._parallel: Any = None
        self._replicas: Any = None
        self._make_groups(world, expert_parallel_group_size or 1)

    def _join(self) -> None:
        """Start torch.distributed from the launcher's variables where the script hasn't."""
        if not _is_grouped() and "RANK" in os.environ:
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            self._owns_group = True

    def _make_groups(self, world: int, size: int) -> None:
        if size == 1:
            return
        own_rank = dist.get_rank()
        for first in range(0, world, size):
            group = dist.new_group(list(range(first, first + size)))
            if first <= own_rank < first + size:
                self._parallel = group
        if world == size:
            return
        for index in range(size):
            group = dist.new_group(list(range(index, world, size)))
            if own_rank % size == index:
                self._replicas = group

    # What holds all experts between it; None: each rank has all.
    def get_expert_parallel_group(self) -> Any:
        return self._parallel

    def get_expert_parallel_world_size(self) -> int:
        return _size(self._parallel)

    def get_expert_parallel_rank(self) -> int:
        return _rank(self._parallel)

    def get_expert_group(self) -> Any:
        return self._parallel

    def get_expert_world_size(self) -> int:
        return _size(self._parallel)

    def get_expert_rank(self) -> int:
        return _rank(self._parallel)

    def get_moe_group(self) -> Any:
        return self._replicas

    # Ranks with the same experts; None: no other has them.
    def get_expert_replica_group(self) -> Any:
        return self._replicas

    def get_expert_replica_world_size(self) -> int:
        return _size(self._replicas)

    def get_expert_replica_rank(self) -> int:
        return _rank(self._replicas)

    def get_expert_replica_src_rank(self) -> int:
        """The first of them, counted over all ranks."""
        return 0 if self._replicas is None else min(dist.get_process_group_ranks(self._replicas))

    get_expert_parallel_replica_group = get_expert_replica_group
    get_expert_parallel_replica_world_size = get_expert_replica_world_size
    get_expert_parallel_replica_rank = get_expert_replica_rank
    get_expert_parallel_replica_src_rank = get_expert_replica_src_rank

    def get_data_parallel_group(self) -> Any:
        """All ranks: what DistributedDataParallel averages everything but experts over."""
        return dist.group.WORLD if _is_grouped() else None

    def get_data_parallel_world_size(self) -> int:
        return dist.get_world_size() if _is_grouped() else 1

    def get_data_parallel_rank(self) -> int:
        return dist.get_rank() if _is_grouped() else 0

    def get_expert_slicing_group(self) -> None:
        return None

    def get_expert_slicing_world_size(self) -> int:
        return 1

    def get_expert_slicing_rank(self) -> int:
        return 0

    def map_expert_id_local_to_global(self, total_experts: int, eparm_id: int) -> int:
        return self.get_expert_rank() * self._local(total_experts) + eparm_id

    def map_expert_id_global_to_local(self, total_experts: int, global_eparm_id: int) -> int:
        """
        Raises:
            ValueError: another rank holds it.
        """
        rank, local = divmod(global_eparm_id, self._local(total_experts))
        if rank != self.get_expert_rank():
            raise ValueError(f"expert {global_eparm_id} lies on rank {rank} of the group")
        return local

    def _local(self, total_experts: int) -> int:
        return local_experts(total_experts, self)

    def __deepcopy__(self, memo: Any) -> DistributionGrid:
        """A copied model talks to the same ranks."""
        return self

    def cleanup(self) -> None:
        """Leave torch.distributed if the grid has started it."""
        if self._owns_group and _is_grouped():
            dist.destroy_process_group()
        self._owns_group = False


def local_experts(total: int, grid: DistributionGrid) -> int:
    """How many of them each rank holds.

    Raises:
        ValueError: they can't be divided evenly.
    """
    size = grid.get_expert_world_size()
    if total < 1 or total % size:
        raise ValueError(f"{total} experts can't be divided evenly over {size} ranks")
    return total // size


def _is_grouped() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


def _size(group: Any) -> int:
    return 1 if group is None else dist.get_world_size(group)


def _rank(group: Any) -> int:
    return 0 if group is None else dist.get_rank(group)
