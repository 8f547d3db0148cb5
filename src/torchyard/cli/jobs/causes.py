"""A job's error with its context: the stack in the user's code, the failed rank's last lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from torchyard.base.terminal_text import plain

_MARK = "Traceback (most recent call last)"


def error_text(job: Mapping[str, Any]) -> str:
    """The job's error with its hint and context; empty if there is none."""
    return "\n\n".join(filter(None, (sentence(job), context(job.get("error") or {}))))


def sentence(job: Mapping[str, Any]) -> str:
    """The job's error with its hint; empty if there is none."""
    error = job.get("error")
    if not error:
        return ""
    text = click.style("error:", fg="red", bold=True) + f" {plain(error['message'])}"
    if error.get("hint"):
        text += "\n" + click.style("hint:", fg="yellow", bold=True) + f" {plain(error['hint'])}"
    return text


def context(error: Mapping[str, Any]) -> str:
    """The lines to print below an error; empty if it concerns no rank."""
    details = error.get("details") or {}
    lines = [str(line) for line in details.get("log_lines") or []]
    parts = []
    # Most tracebacks are at the end of the log and shown with it.
    if not any(_MARK in line for line in lines):
        parts += [_frames(details.get("frames") or [], str(details.get("exception") or ""))]
    if lines:
        heading = click.style(f"Last lines of {details.get('log')}", bold=True)
        parts += ["\n".join([heading, *(f"  {plain(line)}" for line in lines)])]
    return "\n\n".join(part for part in parts if part)


def _frames(frames: list[dict[str, Any]], exception: str) -> str:
    if not frames:
        return ""
    lines = [click.style("Stack (innermost last)", bold=True)]
    for frame in frames:
        inner = f" in {frame['function']}" if frame.get("function") else ""
        lines.append(plain(f"  {frame['file']} line {frame['line']}{inner}"))
        lines += [plain(f"    {frame['code']}")] if frame.get("code") else []
    return "\n".join([*lines, plain(f"  {exception}")] if exception else lines)
