"""Do the same for many jobs, so that a failure of one does not hold up the others.

Owns: which failures concern a single job.
Leaves: what to do about it to the caller.
Always: an unreachable database or runner, a lost lease and a full disk concern all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from torchyard.base import disk
from torchyard.base.errors import DatabaseUnreachable
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.servers.types import LeaseLost

_log = logging.getLogger(__name__)
_Thing = TypeVar("_Thing")


def is_job_error(error: Exception) -> bool:
    """Whether the failure concerns one job only, so that others can go on."""
    concerns_all = isinstance(error, (DatabaseUnreachable, LeaseLost, RunnerUnreachable))
    return not concerns_all and disk.meaning(error) is None


def isolate_failures(things: Iterable[_Thing], act: Callable[[_Thing], None]) -> None:
    """
    Raises:
        Exception: the first failure, after all were tried; immediately when it concerns all.
    """
    first: Exception | None = None
    for thing in things:
        try:
            act(thing)
        except Exception as error:
            if not is_job_error(error):
                raise
            if first is not None:
                _log.exception("the same round failed for another item too")
            first = first or error
    if first is not None:
        raise first
