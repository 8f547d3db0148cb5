"""Who gets nodes.

Owns: the order of the queue, holding nodes for an attempt.
Leaves: slots to compute/, starting to launching.py.
Always: nodes are held all or none, in the order of submission at each cluster.
"""

from __future__ import annotations

import threading
import uuid

from torchyard.compute import actions as computes
from torchyard.jobs import attempt_store, progress, store
from torchyard.jobs.actions import job_key
from torchyard.jobs.launching import Launcher
from torchyard.jobs.room import Room
from torchyard.jobs.types import Attempt, Job, Stage, Status


class Claimer:
    """One look at the queue after the other."""

    def __init__(self, room: Room, launcher: Launcher, stopping: threading.Event) -> None:
        self._room = room
        self._launcher = launcher
        self._stopping = stopping

    def claim(self) -> None:
        stuck: set[int] = set()
        while not self._stopping.is_set():
            with self._room.db.read() as connection:
                waiting = store.queue_heads(connection, self._room.clock.now())
                heads = [job for job in waiting if job.id not in stuck]
            if not heads:
                return
            for head in heads:
                attempt = self.claim_one(head)
                if attempt is None:
                    stuck.add(head.id)
                else:
                    self._launcher.launch(attempt)

    def claim_one(self, job: Job) -> Attempt | None:
        room = self._room
        with room.db.write() as connection:
            room.standing.check(connection)
            job = store.job_by_id(connection, job.id)
            if job.status is not Status.QUEUED:
                return None
            # What an earlier attempt left is brought into the store when it is cleaned up.
            if not all(before.clean for before in attempt_store.attempts_of(connection, job.id)):
                return None
            now = room.clock.now()
            attempt = Attempt(
                id=uuid.uuid4().hex,
                job_id=job.id,
                workspace=job.workspace,
                job_name=job.name,
                number=job.attempt + 1,
                node_count=job.node_count,
                created_at=now,
                server=room.standing.id or None,
            )
            why_not = computes.try_hold(
                connection,
                job.workspace,
                job.compute,
                job.node_count,
                attempt.id,
                job.avoided_slots or (),
            )
            if why_not:
                return None
            attempt_store.add_attempt(connection, attempt)
            store.change_job(connection, job.id, attempt=attempt.number)
            progress.start_stage(connection, job, Stage.RUNNING, now)
            progress.move(connection, job, Status.STARTING, now)
        room.signals.notify(job_key(job))
        return attempt
