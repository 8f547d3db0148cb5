"""Attempts that end outside the scheduler's rounds."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any, NoReturn

from torchyard.jobs.attempts.output_registration import Finisher
from torchyard.jobs.services import Services


class _Broken:
    """A database whose every transaction fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.was_asked = threading.Event()

    def read(self) -> NoReturn:
        self.asked += 1
        self.was_asked.set()
        raise RuntimeError("broken")


def test_a_failed_end_is_not_retried_at_once(services: Services) -> None:
    before = set(threading.enumerate())
    broken: Any = _Broken()
    finisher = Finisher(replace(services, db=broken))
    finisher.finish("an attempt")
    assert broken.was_asked.wait(60)
    for _ in range(20):  # as the rounds that follow each other
        finisher.finish("an attempt")
        time.sleep(0.01)
    assert broken.asked == 1
    finisher.close()
    others = set(threading.enumerate()) - before
    assert not any(thread.name == "finisher" for thread in others)
