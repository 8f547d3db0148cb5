"""Whether what a job made can be handed on again.

Owns: comparing what lies at the places of its outputs with what it delivered.
Leaves: which job it is to running/reusing.py.
Always: files are listed, not read.
"""

from __future__ import annotations

from torchyard.base.errors import TorchyardError
from torchyard.data import actions as data
from torchyard.jobs.files import outputs
from torchyard.jobs.files.outputs import OutputPlace
from torchyard.jobs.records.types import Job, parse_job
from torchyard.jobs.services import FileServices


def find_fault(services: FileServices, job: Job) -> str:
    """What keeps a completed job's outputs from being handed on, in words; empty for nothing."""
    spec = parse_job(job).spec
    for name, place in outputs.destinations(job).items():
        subject = f"output `{name}` of job `{job.name}`"
        if place.is_shared:
            return f"{subject} lies where other jobs may write, too: `{place.uri}`"
        if spec.outputs[name].mode == "direct":
            return f"{subject} is in mode `direct`: nobody knows what the job wrote"
        try:
            changed = _changed(services, job, place)
        except TorchyardError as error:
            return f"{subject} can't be read: {error.message}"
        if changed is not None:
            file = f": `{changed}`" if changed else ""
            return f"{subject} is no longer what the job wrote{file}"
    return ""


def _changed(services: FileServices, job: Job, place: OutputPlace) -> str | None:
    """The first file that is not as the job delivered it, empty where the output is the file; None
    when all are.
    """
    location = data.locate(services.db, services.datastores, job.workspace, place.uri)
    known = data.checksums_of(services.db, job.workspace, location)
    if place.file:
        entry = location.files.entry(location.path)
        there = {} if entry is None else {"": entry.mark}
    else:
        there = {entry.path: entry.mark for entry in location.files.walk(location.path)}
    delivered = {path: checksum.mark for path, checksum in known.items()}
    paths = sorted({*there, *delivered})
    return next((path for path in paths if there.get(path) != delivered.get(path)), None)
