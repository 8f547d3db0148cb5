"""What is said about a job, without its secrets.

Owns: masking answers about a job, and what its own script writes to the server.
Leaves: the secrets in a document to spec/secrets.py.
Always: what leaves the server for a person shows no secret of a job, not even to its owner; the
document in the database is whole, because the next attempt needs it.
"""

from __future__ import annotations

from typing import TypeVar

from torchyard.base.db import Database
from torchyard.base.documents import secret_variables
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.shared.masking import TOKENS, Masker
from torchyard.workspaces.types import Identity, TokenKind

_Body = TypeVar("_Body")


def masker(job: Job) -> Masker:
    """Puts stars in place of the job's secrets and of this server's tokens."""
    return secret_variables.masker(job.document)


def masker_of_script(db: Database, identity: Identity) -> Masker | None:
    """Masks what the script that sends a request writes; None when a person sends it."""
    if identity.kind is not TokenKind.RUN:
        return None
    with db.read() as connection:
        job = store.job_named(connection, identity.workspace, identity.subject.partition("/")[2])
    return TOKENS if job is None else masker(job)


def masked(job: Job, body: _Body) -> _Body:
    """A part of an answer about the job, its secrets masked wherever they stand."""
    masked_body: _Body = masker(job).json(body)
    return masked_body
