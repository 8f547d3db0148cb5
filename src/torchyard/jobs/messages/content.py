"""What a message says.

Owns: the JSON of webhooks, the text of e-mails.
Leaves: sending them to webhooks.py and emails.py.
Always: no secret of the job is in it; names and errors, which are hostile input, can't end a line
of an e-mail's head.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from torchyard.base.clock import to_text
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job

_LONGEST_SUBJECT = 200
_LONGEST_CAUSE = 4000


def page_of(job: Job, page_url: str) -> str:
    """The address of the job's page; empty where the server's is not known."""
    if not page_url:
        return ""
    workspace, name = quote(job.workspace, safe=""), quote(job.name, safe="")
    return f"{page_url}/ui/workspaces/{workspace}/jobs/{name}"


def to_json(job: Job, message_id: str, page_url: str) -> dict[str, Any]:
    """
    Args:
        message_id: the same when it is sent again.
    """
    cause = None
    if job.error is not None:
        cause = {"code": job.error.code, "message": job.error.message[:_LONGEST_CAUSE]}
    body = {
        "id": message_id,
        "event": f"job.{job.status.value.lower()}",
        "job": {
            "name": job.name,
            "display_name": job.display_name,
            "workspace": job.workspace,
            "experiment": job.experiment_name,
            "owner": job.owner,
            "status": job.status.value,
            "cause": cause,
            "hint": "" if job.error is None else job.error.hint[:_LONGEST_CAUSE],
            "exit_code": job.exit_code,
            "created_at": to_text(job.created_at),
            "started_at": None if job.started_at is None else to_text(job.started_at),
            "ended_at": None if job.ended_at is None else to_text(job.ended_at),
            "duration_s": job.duration_s,
            "url": page_of(job, page_url),
        },
    }
    return job_masking.masked(job, body)


def subject(body: dict[str, Any]) -> str:
    """One line without control characters."""
    job = body["job"]
    shown = job["display_name"] or job["name"]
    return _line(f"Job {shown} {job['status'].lower()}")[:_LONGEST_SUBJECT]


def text(body: dict[str, Any], names_you: str) -> str:
    """The body of an e-mail.

    Args:
        names_you: what names its recipient, `job` or `workspace`.
    """
    job = body["job"]
    rows = [
        ("Job", job["name"]),
        ("Name", job["display_name"] if job["display_name"] != job["name"] else ""),
        ("Status", job["status"]),
        ("Workspace", job["workspace"]),
        ("Experiment", job["experiment"]),
        ("Owner", job["owner"]),
        ("Duration", "" if job["duration_s"] is None else _duration(job["duration_s"])),
        ("Cause", job["cause"]["message"] if job["cause"] else ""),
        ("Hint", job["hint"]),
        ("Page", job["url"]),
    ]
    lines = [f"{title}: {_line(value)}" for title, value in rows if value]
    why = f"You get this because the {names_you} names you as a recipient."
    return "\n".join([*lines, "", why, ""])


def _line(value: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())


def _duration(seconds: float) -> str:
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min {seconds_left} s" if hours else f"{minutes} min {seconds_left} s"
    )
