"""Which checkpoints are kept.

Owns: the rule.
Leaves: deleting to folders.
Always: the newest checkpoint is kept; without a rule all are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.train.checkpoint.errors import CheckpointError


@dataclass(frozen=True)
class Retention:
    """A checkpoint is kept if one of the rules keeps it.

    `last` is how many of the newest are kept, `every` keeps steps that it divides, `best` is how
    many with the best `metric` of `save` are kept; `mode` is "min" where a smaller one is better,
    else "max".
    """

    last: int | None = None
    every: int | None = None
    best: int | None = None
    mode: str = "min"

    def __post_init__(self) -> None:
        for name in ("last", "every", "best"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise CheckpointError(
                    f"`keep_{name}` must be a positive integer, not {value!r}",
                    f"leave `keep_{name}` out to keep all checkpoints",
                )
        if self.mode not in ("min", "max"):
            raise CheckpointError(
                f'`best` must be "min" or "max", not {self.mode!r}',
                'say best="max" for a metric such as accuracy',
            )

    def expired(self, metrics: Mapping[int, float | None]) -> tuple[int, ...]:
        """The steps that no rule keeps, of those given with their metrics."""
        if self.last is None and self.every is None and self.best is None:
            return ()
        steps = sorted(metrics)
        steps_to_keep = set(steps[-(self.last or 1) :])
        if self.every is not None:
            steps_to_keep.update(step for step in steps if step % self.every == 0)
        if self.best is not None:
            sign = 1 if self.mode == "min" else -1
            ranked = sorted(
                (sign * metric, -step)
                for step, metric in metrics.items()
                if metric is not None and not math.isnan(metric)
            )
            steps_to_keep.update(-negative_step for _, negative_step in ranked[: self.best])
        return tuple(step for step in steps if step not in steps_to_keep)
