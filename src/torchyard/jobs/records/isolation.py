"""The same for each of many jobs, so that what fails for one holds up no other.

Owns: which failures are one job's own.
Leaves: what to do about it to the caller.
Always: a database that is away, a lease that is lost and a disk that is full concern all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from torchyard.base import disk
from torchyard.base.errors import DatabaseUnreachable
from torchyard.servers.types import LeaseLost

_log = logging.getLogger(__name__)
_Thing = TypeVar("_Thing")


def is_job_error(error: Exception) -> bool:
    """Whether another job may well go on after this failure."""
    return not isinstance(error, (DatabaseUnreachable, LeaseLost)) and disk.meaning(error) is None


def isolate_failures(things: Iterable[_Thing], act: Callable[[_Thing], None]) -> None:
    """
    Raises:
        Exception: the first failure, once all have had their turn; at once, when it concerns all.
    """
    first: Exception | None = None
    for thing in things:
        try:
            act(thing)
        except Exception as error:
            if not is_job_error(error):
                raise
            if first is not None:
                _log.exception("the same round failed at another one, too")
            first = first or error
    if first is not None:
        raise first
