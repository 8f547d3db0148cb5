"""The table of messages that are to be sent.

Owns: a row for each message and recipient, from the end of a job until it is sent or given up.
Leaves: sending to messages/sender.py, who is a recipient to spec/notification_settings.py.
Always: rows are written in the transaction that ends the job; a claimed message is due again when
its claim is over, so that a server that is killed while it sends loses none.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, execute_each, metadata
from torchyard.jobs.records.types import Job
from torchyard.jobs.spec import notification_settings
from torchyard.jobs.spec.notification_settings import Recipient

messages = Table(
    "messages",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("recipient", JSON, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("tries", Integer, nullable=False),
    Index("ix_messages_kind_due_at", "kind", "due_at"),
)
_ADD = insert(messages)


@dataclass(frozen=True)
class Message:
    """`id` stays the same when it is sent again; `tries` counts this one, too."""

    id: str
    job_id: int
    recipient: Recipient
    created_at: datetime
    due_at: datetime
    tries: int


def add(connection: Connection, job: Job, recipients: Sequence[Recipient], now: datetime) -> None:
    rows = [
        {
            "id": str(uuid.uuid4()),
            "job_id": job.id,
            "kind": recipient.kind,
            "recipient": recipient.to_json(),
            "created_at": now,
            "due_at": now,
            "tries": 0,
        }
        for recipient in recipients
    ]
    execute_each(connection, _ADD, rows)


def due(connection: Connection, kind: str, now: datetime, limit: int) -> list[str]:
    """The ids of messages that wait to be sent, those that wait longest first."""
    query = (
        select(messages.c.id)
        .where(messages.c.kind == kind, messages.c.due_at <= now)
        .order_by(messages.c.due_at)
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def claim(connection: Connection, id: str, now: datetime, until: datetime) -> Message | None:
    """Claim a message that is due; None when another server has."""
    changed = connection.execute(
        update(messages)
        .where(messages.c.id == id, messages.c.due_at <= now)
        .values(due_at=until, tries=messages.c.tries + 1)
    )
    if not changed.rowcount:
        return None
    row = connection.execute(select(messages).where(messages.c.id == id)).one()
    recipient = notification_settings.from_json(row.recipient)
    return Message(row.id, row.job_id, recipient, row.created_at, row.due_at, row.tries)


def drop(connection: Connection, message: Message) -> bool:
    """Whether it was still there, by this claim."""
    claimed = messages.c.id == message.id, messages.c.tries == message.tries
    return bool(connection.execute(delete(messages).where(*claimed)).rowcount)


def postpone(connection: Connection, message: Message, until: datetime) -> None:
    """End the claim; the message is due again at `until`."""
    claimed = messages.c.id == message.id, messages.c.tries == message.tries
    connection.execute(update(messages).where(*claimed).values(due_at=until))


def count(connection: Connection, job_id: int) -> int:
    """How many messages of a job wait to be sent."""
    return len(connection.execute(select(messages.c.id).where(messages.c.job_id == job_id)).all())
