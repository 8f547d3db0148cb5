"""The page of a pipeline: its steps.

Owns: the table of steps.
Leaves: a job's page to page.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchyard.base.terminal_text import plain
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchyard.client.client import Client
    from torchyard.client.job import Job

_LONGEST_REASON = 60

COLUMNS: list[tables.Column] = [
    ("STEP", lambda step: plain(step["name"])),
    ("STATUS", lambda step: tables.status(step["status"] or step["outcome"] or "waits")),
    ("TIME", lambda step: tables.since(step["started_at"], step["ended_at"], step["duration_s"])),
    ("JOB", lambda step: step["job"]),
    ("", lambda step: _reason(step)),
]


def below(client: Client, job: Job, plotted: bool) -> str:
    """What is shown of a pipeline below its job's page."""
    steps = client.pipelines.steps(job.name)
    return tables.table_text([step.raw for step in steps], COLUMNS)


def _reason(step: Mapping[str, Any]) -> str:
    text = plain(str(step["reason"] or "").partition("\n")[0])
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}…"
