"""The limits of a sweep: how many trials, how many at once, how long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import At, By, Whole
from torchyard.base.documents.models import Document, declared, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import in_seconds

_DEFAULT_TRIALS = 1000
_MOST_TRIALS = 100_000
_DEFAULT_TIMEOUT_S = 5_184_000.0
_LONGEST_S = 10 * 365 * 86_400.0


@dataclass(frozen=True)
class Limits:
    """`trial_timeout_s` is 0 for none; `max_failed_trials` is None when all may fail."""

    max_total_trials: int = _DEFAULT_TRIALS
    max_concurrent_trials: int = _DEFAULT_TRIALS
    timeout_s: float = _DEFAULT_TIMEOUT_S
    trial_timeout_s: float = 0.0
    max_failed_trials: int | None = None


def _seconds(value: Any, at: At) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or math.isnan(value) or not 0 <= value <= _LONGEST_S:
        raise InvalidSpec(
            f"`{at[-1]}` must be a number of seconds, up to ten years",
            f"for example `{at[-1]}: {in_seconds(value) or 3600}`",
            at=at,
        )
    return float(value)


class LimitsFile(Document):
    max_total_trials: int = declared(_DEFAULT_TRIALS, "up to 100,000", Whole(1, _MOST_TRIALS))
    max_concurrent_trials: int | None = declared(
        None, "default: `max_total_trials`, which it must not exceed", Whole(1, _MOST_TRIALS)
    )
    timeout: float | None = declared(
        None, "seconds from the sweep's start to its end; default 5,184,000 (60 days)", By(_seconds)
    )
    trial_timeout: float | None = declared(
        None, "seconds from the start of a trial's ranks; default: none", By(_seconds)
    )

    @rule("max_total_trials", "max_concurrent_trials")
    def _concurrent(self) -> None:
        concurrent, total = self.max_concurrent_trials, self.max_total_trials
        if concurrent is not None and concurrent > total:
            raise InvalidSpec(
                f"`max_concurrent_trials` is {concurrent}, and `max_total_trials` is {total}",
                f"write {total} or less",
                at=("max_concurrent_trials",),
            )

    @property
    def limits(self) -> Limits:
        return Limits(
            self.max_total_trials,
            self.max_concurrent_trials or self.max_total_trials,
            self.timeout or _DEFAULT_TIMEOUT_S,
            self.trial_timeout or 0.0,
        )
