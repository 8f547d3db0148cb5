"""What was decided in a sweep, and when: its log.

Owns: the file, which has the name that Azure's clients look for.
Leaves: the file's bytes to jobs/records/logs.py.
Always: only the keeper writes it; a line may be lost when the server is killed, never torn.
"""

from __future__ import annotations

from torchyard.base.clock import to_text
from torchyard.jobs.actions import job_key
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices
from torchyard.shared.masking import Masker

PATH = "azureml-logs/hyperdrive.txt"


def add(services: FileServices, sweep: Job, masker: Masker, lines: list[str]) -> None:
    """Add lines, each with the time."""
    if not lines:
        return
    now = to_text(services.clock.now())
    text = "".join(f"{now} {masker.text(' '.join(line.split()))}\n" for line in lines)
    file = services.logs.file(sweep.workspace, sweep.name, sweep.attempt, PATH)
    size = file.stat().st_size if file.exists() else 0
    services.logs.append(
        sweep.workspace, sweep.name, sweep.attempt, PATH, size, text.encode(errors="replace")
    )
    services.signals.notify(job_key(sweep))
