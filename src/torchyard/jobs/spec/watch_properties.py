"""What a job asks of the watch over its ranks, by its properties.

Owns: reading `torchyard.hang_*`, `torchyard.stall_notice_s` and `torchyard.rendezvous_timeout_s`.
Leaves: watching to the worker.
Always: without these properties nothing ends the job; a notice still says that its ranks stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.jobs.spec import own_properties

_ACTIONS = ("dump", "fail")
_ACTION = "torchyard.hang_action"
_STALL = "torchyard.stall_notice_s"
STALL_NOTICE_S, STALL_NOTICE_ALONE_S = 30.0, 300.0
_MOST_S = 30 * 86_400.0


@dataclass(frozen=True)
class Watched:
    """Fields are named as those of a LaunchPlan; 0 is off."""

    rendezvous_timeout_s: float = 0.0
    hang_after_s: float = 0.0
    hang_action: str = "dump"
    stall_notice_s: float = 0.0


def of_job(properties: Mapping[str, str], world_size: int) -> Watched:
    """
    Raises:
        InvalidSpec: a value is not understood.
    """
    watched = read(properties)
    if _STALL in properties:
        return watched
    default_s = STALL_NOTICE_S if world_size > 1 else STALL_NOTICE_ALONE_S
    return replace(watched, stall_notice_s=default_s)


def read(properties: Mapping[str, str]) -> Watched:
    """
    Raises:
        InvalidSpec: a value is not understood.
    """
    action = properties.get(_ACTION, "dump")
    if action not in _ACTIONS:
        raise InvalidSpec(
            f"`{_ACTION}` is `{action[:50]}`",
            did_you_mean(action, _ACTIONS),
            at=("properties", _ACTION),
        )
    hang_after_s = _seconds(properties, "torchyard.hang_after_s")
    if _ACTION in properties and not hang_after_s:
        raise InvalidSpec(
            f"`{_ACTION}` says what to do after a silence, and none is watched for",
            "add `torchyard.hang_after_s: 600` to the properties",
            at=("properties", _ACTION),
        )
    return Watched(
        _seconds(properties, "torchyard.rendezvous_timeout_s"),
        hang_after_s,
        action,
        _seconds(properties, _STALL),
    )


def _seconds(properties: Mapping[str, str], key: str) -> float:
    return own_properties.number(properties, key, 0.0, 0.0, _MOST_S)
