"""What the command shows of a failed job's cause."""

from __future__ import annotations

from typing import Any

import click

from torchyard.cli.jobs import causes
from torchyard.cli.jobs.causes import error_text

LOG = "user_logs/std_log_process_3.txt"
FRAMES = [
    {"file": "train.py", "line": 9, "function": "", "code": "main()"},
    {"file": "data.py", "line": 4, "function": "load", "code": "open(path)"},
]


def said(**details: Any) -> str:
    error = {"code": "c", "message": "m", "hint": "h", "details": details}
    return click.unstyle(causes.context(error))


def test_a_traceback_in_the_log_is_shown_as_it_was_printed() -> None:
    lines = ["epoch 1", "Traceback (most recent call last):", "KeyError: 'lr'"]
    assert said(log=LOG, log_lines=lines, frames=FRAMES, exception="KeyError: 'lr'") == (
        f"Last lines of {LOG}\n  epoch 1\n  Traceback (most recent call last):\n  KeyError: 'lr'"
    )


def test_a_stack_that_the_log_lacks_is_shown_before_it() -> None:
    assert said(log=LOG, log_lines=["epoch 1"], frames=FRAMES, exception="KeyError: 'lr'") == (
        "Stack (innermost last)\n"
        "  train.py line 9\n    main()\n  data.py line 4 in load\n    open(path)\n"
        "  KeyError: 'lr'\n"
        f"\nLast lines of {LOG}\n  epoch 1"
    )


def test_an_error_without_details_is_its_message_and_hint() -> None:
    error = {"code": "timeout", "message": "too long", "hint": "raise the limit"}
    job: Any = {"error": error}
    assert click.unstyle(error_text(job)) == "error: too long\nhint: raise the limit"
