"""fairscale's place of ShardedGradScaler, which torch has under the same name."""

from __future__ import annotations

from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

__all__ = ["ShardedGradScaler"]
