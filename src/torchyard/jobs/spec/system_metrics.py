"""How often the worker samples what a job's nodes use.

Owns: reading `torchyard.system_metrics` and `torchyard.system_metrics.interval`.
Leaves: sampling to the worker, the metrics' names to shared/record_rules.py.
Always: left out means every ten seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import own_properties

_ENABLED = "torchyard.system_metrics"
_INTERVAL = f"{_ENABLED}.interval"
_DEFAULT_S, _LEAST_S, _MOST_S = 10.0, 1.0, 86_400.0


def interval_s(properties: Mapping[str, str]) -> float:
    """0 when nothing is sampled.

    Raises:
        InvalidSpec: a value is not understood, or out of range.
    """
    seconds = _DEFAULT_S
    if _INTERVAL in properties:
        written = properties[_INTERVAL]
        seconds = own_properties.duration_s(written)
        if not _LEAST_S <= seconds <= _MOST_S:
            raise InvalidSpec(
                f"`{_INTERVAL}` is `{written[:40]}`",
                "a time from `1s` to `1d`, as `5s` or `1m`",
                at=("properties", _INTERVAL),
            )
    enabled = properties.get(_ENABLED, "true").strip().lower()
    if enabled not in ("true", "false"):
        raise InvalidSpec(
            f"`{_ENABLED}` is `{enabled[:40]}`",
            "`false` turns it off; say how often by `torchyard: {system_metrics: {interval: 5s}}`",
            at=("properties", _ENABLED),
        )
    return seconds if enabled == "true" else 0.0
