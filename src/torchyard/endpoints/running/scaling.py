"""How many instances a deployment should have.

Owns: the rule of target_utilization, scaling to zero and waking.
Leaves: the figures to the router, starting and ending instances to decisions.py.
Always: between min_instances and max_instances; it grows at once and shrinks after a while; a
request that waits for a first instance gets one.

Source: `scale_settings` of Azure ML's online deployments (target_utilization).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchyard.endpoints.spec.deployment_spec import DeploymentSpec

_SHRINK_AFTER_S = 60.0


@dataclass(frozen=True)
class Load:
    """What the router counts of a deployment; `requests` and `busy_s` only rise."""

    requests: int = 0
    busy_s: float = 0.0
    in_flight: int = 0
    queued: int = 0
    is_waited_for: bool = False


class Scale:
    """Of one deployment. Times are of a monotonic clock, in seconds."""

    def __init__(self, count: int, now_s: float) -> None:
        """
        Args:
            count: how many instances there are.
        """
        self._count = count
        self._last: Load | None = None
        self._last_at_s = self._used_at_s = self._high_at_s = now_s

    def target_count(self, spec: DeploymentSpec, load: Load | None, now_s: float) -> int:
        """
        Args:
            load: None while the router doesn't answer.
        """
        settings = spec.scale_settings
        if not settings.is_automatic:
            return spec.instance_count
        self._count = min(max(self._count, settings.min_instances), settings.max_instances)
        if load is None:
            return self._count
        last = self._last
        if last is None or load.requests < last.requests:
            self._last, self._last_at_s = load, now_s
            last = load
        if load.requests != last.requests or load.in_flight or load.queued or load.is_waited_for:
            self._used_at_s = now_s
        if load.is_waited_for and not self._count:
            self._count = 1
        if now_s - self._last_at_s >= settings.polling_interval:
            self._rescale(spec, load, last, now_s)
            self._last, self._last_at_s = load, now_s
        return self._count

    def _rescale(self, spec: DeploymentSpec, load: Load, last: Load, now_s: float) -> None:
        settings = spec.scale_settings
        slots = spec.request_settings.max_concurrent_requests_per_instance
        busy = (load.busy_s - last.busy_s) / (now_s - self._last_at_s)
        needed = math.ceil(
            (busy + load.queued) * 100 / slots / settings.target_utilization_percentage
        )
        needed = min(max(needed, settings.min_instances, 1), settings.max_instances)
        idle_s = now_s - self._used_at_s
        if settings.min_instances == 0 and idle_s >= spec.own_settings.scale_to_zero_after_s:
            self._count = 0
        elif not self._count:
            return  # a request wakes it
        elif needed >= self._count:
            self._count, self._high_at_s = needed, now_s
        elif now_s - self._high_at_s >= _SHRINK_AFTER_S:
            self._count, self._high_at_s = self._count - 1, now_s
