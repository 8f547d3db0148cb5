"""What was decided in a validation or release, and when: its log.

Owns: the file's name.
Leaves: the file's bytes to jobs/records/logs.py.
Always: only the keeper writes it; a line may be lost when the server is killed, never torn.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchyard.base.clock import to_text
from torchyard.jobs.actions import job_key
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices

PATH = "user_logs/std_log.txt"


def add(services: FileServices, job: Job, lines: Sequence[str]) -> None:
    """Add lines, each with the time."""
    now = to_text(services.clock.now())
    text = "".join(f"{now} {' '.join(line.split())}\n" for line in lines if line.strip())
    file = services.logs.file(job.workspace, job.name, job.attempt, PATH)
    size = file.stat().st_size if file.exists() else 0
    services.logs.append(
        job.workspace, job.name, job.attempt, PATH, size, text.encode(errors="replace")
    )
    services.signals.notify(job_key(job))
