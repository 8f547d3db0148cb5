"""What was decided in a job whose children do the work, and when: its log.

Leaves: the file's bytes to jobs/records/logs.py, its name to the packages above.
Always: only a keeper writes it; a line may be lost when the server is killed, never torn.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchyard.base.clock import to_text
from torchyard.jobs.actions import job_key
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices


def add(services: FileServices, job: Job, path: str, lines: Sequence[str]) -> None:
    """Add lines, each with the time, without the job's secrets."""
    if not lines:
        return
    now, masker = to_text(services.clock.now()), job_masking.masker(job)
    text = "".join(f"{now} {masker.text(' '.join(line.split()))}\n" for line in lines)
    file = services.logs.file(job.workspace, job.name, job.attempt, path)
    size = file.stat().st_size if file.exists() else 0
    content = text.encode(errors="replace")
    services.logs.append(job.workspace, job.name, job.attempt, path, size, content)
    services.signals.notify(job_key(job))
