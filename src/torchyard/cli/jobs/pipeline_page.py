"""The steps of a pipeline: below its job's page, and live at a terminal.

Owns: the table of steps, which of many are shown, why the first failed one did; drawing the table
again until the pipeline ends.
Leaves: a job's page to page.py, first and last lines of a stream to streaming.py.
Always: of steps that do not fit those that failed, run or wait are shown before those that ended.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import NotFound, Unreachable
from torchyard.base.terminal_text import plain
from torchyard.cli.jobs import causes
from torchyard.cli.terminal import live_area, tables
from torchyard.client.streams import DEFAULT_PATIENCE_S
from torchyard.shared.plurals import plural

if TYPE_CHECKING:
    from torchyard.client.client import Client
    from torchyard.client.job import Job

Steps = Sequence[Mapping[str, Any]]

_LONGEST_REASON = 60
_MOST_ROWS = 100
_EVERY_S = 1.0
_ENDED = ("Completed", "Failed", "Canceled")
_FIRST_SHOWN = ("failed", "live", "")
_LOST = (
    "The server is unreachable; the pipeline goes on with it. Reconnecting… "
    "`yard server start` starts one that was stopped on this machine."
)


def below(client: Client, job: Job, plotted: bool) -> str:
    """What is shown of a pipeline below its job's page."""
    steps = client.pipelines.steps(job.name).raw
    return "\n\n".join(filter(None, (table(steps, _MOST_ROWS), failure(client, steps))))


def table(steps: Steps, limit: int, with_jobs: bool = True) -> str:
    """At most `limit` of the steps, in the order in which they can run."""
    shown, rest = _fitting(steps, limit)
    outcomes = {step["name"]: step["outcome"] for step in steps}
    columns: list[tables.Column] = [
        ("STEP", lambda step: plain(step["name"])),
        ("STATUS", lambda step: tables.status(_status(step))),
        ("TIME", lambda step: tables.since(
            step["started_at"], step["ended_at"], step["duration_s"])),
        ("JOB", lambda step: step["job"]),
        ("", lambda step: _reason(step, outcomes)),
    ]  # fmt: skip
    text = tables.table_text(shown, [each for each in columns if with_jobs or each[0] != "JOB"])
    return f"{text}\n… and {len(rest)} more: {_counts(rest)}" if rest else text


def failure(client: Client, steps: Steps) -> str:
    """The stack and the last lines of the first step that failed; empty if there are none."""
    failed = next((step for step in steps if step["outcome"] == "failed" and step["job"]), None)
    if failed is None:
        return ""
    try:
        text = causes.context(client.jobs.get(failed["job"]).raw.get("error") or {})
    except NotFound:  # deleted by now
        return ""
    return text and f"Step `{plain(failed['name'])}`\n\n{text}"


def follow(
    client: Client, name: str, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """Draw the table of steps again and again until the pipeline has ended; its JSON then.

    Raises:
        KeyboardInterrupt: the user left; the pipeline goes on.
        Unreachable: the server was unreachable for ten minutes.
    """
    text, drawn, notices = "", 0, 0
    answered_at = time.monotonic()
    while True:
        above: list[str] = []
        job: Job | None = None
        try:
            job = client.jobs.get(name)  # before its steps, which are the last ones once it ended
            steps = client.pipelines.steps(name).raw
            text, answered_at = _live_page(job, steps), time.monotonic()
            above = [f"Notice: {plain(each)}" for each in job.notices[notices:]]
            notices = len(job.notices)
            shown = text
        except Unreachable:
            if not drawn or time.monotonic() - answered_at > DEFAULT_PATIENCE_S:
                raise
            shown = f"{text}\n{tables.beginning(_LOST, shutil.get_terminal_size().columns - 1)}"
        drawn = live_area.draw("\n".join([*above, shown]), drawn) - len(above)
        if job is not None and job.status in _ENDED:
            return job.raw
        sleep(_EVERY_S)


def _live_page(job: Job, steps: Steps) -> str:
    raw = job.raw
    took = tables.since(raw["started_at"], raw["ended_at"])
    done = sum(step["outcome"] not in ("", "live") for step in steps)
    line = f"{done} of {len(steps)} {plural('step', len(steps))} ended"
    size = shutil.get_terminal_size()
    rows = table(steps, max(size.lines - 6, 3), with_jobs=False)
    return f"{rows}\n\n{tables.status(raw['status'])}  {took}  {line}"


def _fitting(steps: Steps, limit: int) -> tuple[Steps, Steps]:
    """Those that are shown, in their order, and all others."""
    if len(steps) <= limit:
        return steps, ()
    ranks = {outcome: rank for rank, outcome in enumerate(_FIRST_SHOWN)}
    ordered = sorted(steps, key=lambda step: ranks.get(step["outcome"], len(ranks)))
    chosen = {step["number"] for step in ordered[:limit]}
    shown = [step for step in steps if step["number"] in chosen]
    return shown, [step for step in steps if step["number"] not in chosen]


def _counts(steps: Steps) -> str:
    counts: dict[str, int] = {}
    for step in steps:
        word = step["outcome"] or "waiting"
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _status(step: Mapping[str, Any]) -> str:
    if step["outcome"] == "live":
        return str(step["status"] or "Starting")
    return str(step["outcome"] or "waiting").capitalize()


def _reason(step: Mapping[str, Any], outcomes: Mapping[str, str]) -> str:
    text = plain(str(step["reason"] or "").partition("\n")[0])
    if step["reused_from"]:
        text = f"reused from {plain(step['reused_from'])}"
    elif not step["outcome"]:
        awaited = dict.fromkeys(taken["step"] for taken in step["takes"].values())
        names = [name for name in awaited if outcomes.get(name) in ("", "live")]
        text = f"waits for {plain(', '.join(names))}" if names else text
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}…"
