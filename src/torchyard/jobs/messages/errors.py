"""Why a message was not sent."""

from __future__ import annotations


class NotSent(Exception):
    """It may be sent later; the text says what went wrong."""


class NeverSent(Exception):
    """It will not help to try again; the text says why."""
