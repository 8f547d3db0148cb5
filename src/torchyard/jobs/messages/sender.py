"""Send the messages that wait.

Owns: the rounds, who sends what when, trying again, giving up.
Leaves: sending one message to webhooks.py and emails.py, the table to records/message_store.py.
Always: of several servers one sends a message at a time; a message that was sent and not yet
dropped when its server was killed is sent again with the same id; no other work waits for any of
this, and slow webhooks hold up no e-mail.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.documents import secret_variables
from torchyard.base.errors import DatabaseUnreachable, InvalidInput
from torchyard.jobs.messages import content, webhooks
from torchyard.jobs.messages.errors import NeverSent, NotSent
from torchyard.jobs.messages.settings import MessageSettings
from torchyard.jobs.records import message_store, progress, store
from torchyard.jobs.records.message_store import Message
from torchyard.jobs.records.types import Job, parse_job
from torchyard.jobs.spec import notification_settings
from torchyard.jobs.spec.notification_settings import Recipient
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import notifications

_log = logging.getLogger(__name__)
KINDS = ("webhook", "email")
GIVEN_UP_AFTER = timedelta(days=1)
_EVERY_S = 1.0
# At once, of each kind.
_MOST = 4
# Longer than sending one can take; then another server tries.
_CLAIM = timedelta(minutes=5)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 3600.0
_STOP_LIMIT_S = 3.0


class Sender:
    """A thread that looks for messages, and one more for each that is being sent."""

    def __init__(self, db: Database, clock: Clock, settings: MessageSettings) -> None:
        self._db, self._clock, self._settings = db, clock, settings
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="messages", daemon=True)
        self._sending: dict[str, list[threading.Thread]] = {kind: [] for kind in KINDS}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop looking for messages; what is not sent within seconds is sent by the next server."""
        self._stopping.set()
        self._thread.join(_STOP_LIMIT_S)
        self.wait(_STOP_LIMIT_S)

    def run_round(self) -> int:
        """Begin to send what is due; how many that is."""
        begun = 0
        for kind in KINDS:
            threads = [thread for thread in self._sending[kind] if thread.is_alive()]
            self._sending[kind] = threads
            for message in self._claimed(kind, _MOST - len(threads)):
                # Daemons: the end of the process does not wait for them.
                thread = threading.Thread(
                    target=self._deliver, args=(message,), name=f"message-{kind}", daemon=True
                )
                threads.append(thread)
                thread.start()
                begun += 1
        return begun

    def wait(self, limit_s: float) -> None:
        """Until what is being sent now is sent, or not."""
        deadline = time.monotonic() + limit_s
        for threads in self._sending.values():
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            try:
                self.run_round()
            except DatabaseUnreachable:
                pass  # the scheduler's rounds say so
            except Exception:
                _log.exception("messages could not be sent; the next round comes")

    def _claimed(self, kind: str, limit: int) -> list[Message]:
        if limit <= 0:
            return []
        now = self._clock.now()
        with self._db.read() as connection:
            ids = message_store.due(connection, kind, now, limit)
        if not ids:
            return []
        with self._db.write() as connection:
            claimed = [message_store.claim(connection, id, now, now + _CLAIM) for id in ids]
        return [message for message in claimed if message is not None]

    def _deliver(self, message: Message) -> None:
        try:
            self._try(message)
        except DatabaseUnreachable:
            pass  # it is due again when the claim is over
        except Exception:
            if not self._stopping.is_set():
                _log.exception("message %s could not be sent; will retry", message.id)

    def _try(self, message: Message) -> None:
        with self._db.read() as connection:
            job = store.job_if_any(connection, message.job_id)
            if job is None:
                return
            variables = _variables(connection, job, message.recipient)
        try:
            self._send(job, message, variables)
        except NeverSent as error:
            self._give_up(job, message, str(error))
        except (NotSent, InvalidInput, ValueError) as error:
            self._postpone(job, message, str(error))
        else:
            with self._db.write() as connection:
                message_store.drop(connection, message)

    def _send(self, job: Job, message: Message, variables: Mapping[str, str]) -> None:
        body = content.to_json(job, message.id, self._settings.page_url)
        recipient = message.recipient
        if recipient.email:
            # A server that sends no e-mail does without the libraries.
            from torchyard.jobs.messages import emails

            sender = self._settings.smtp.sender if self._settings.smtp else "torchyard@localhost"
            names_you = "workspace" if recipient.of_workspace else "job"
            subject, text = content.subject(body), content.text(body, names_you)
            email = emails.make(recipient.email, subject, text, message.id, sender)
            emails.send(email, self._settings)
            return
        url = recipient.url or _variable(variables, recipient.url_env)
        parsed_url = notification_settings.parse_url(url)
        if parsed_url is None:
            raise NeverSent("its URL is not valid")
        data = json.dumps(body).encode()
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {"X-Torchyard-Message": message.id, "X-Torchyard-Timestamp": timestamp}
        if recipient.secret_env:
            secret = _variable(variables, recipient.secret_env)
            signature = webhooks.signature(secret, timestamp, data)
            headers["X-Torchyard-Signature"] = f"sha256={signature}"
        webhooks.post(parsed_url, data, headers, self._settings)

    def _postpone(self, job: Job, message: Message, reason: str) -> None:
        now = self._clock.now()
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(message.tries - 1, 20))
        until = now + timedelta(seconds=pause_s)
        if until >= message.created_at + GIVEN_UP_AFTER:
            self._give_up(job, message, reason)
            return
        _log.info("message %s of job %s: %s; will retry", message.id, job.name, reason)
        with self._db.write() as connection:
            message_store.postpone(connection, message, until)

    def _give_up(self, job: Job, message: Message, reason: str) -> None:
        now = self._clock.now()
        tries = "once" if message.tries == 1 else f"{message.tries} times"
        text = f"{message.recipient.label} was tried {tries} and is given up: {reason}"
        _log.warning("message %s of job %s: %s", message.id, job.name, text)
        with self._db.write() as connection:
            if message_store.drop(connection, message):
                progress.notice(connection, job, text, now)


def _variables(connection: Connection, job: Job, recipient: Recipient) -> Mapping[str, str]:
    """The values of what `url_env` and `secret_env` name."""
    if not recipient.of_workspace:
        return parse_job(job).spec.environment_variables
    stored = workspaces.notifications_of(connection, job.workspace)
    secret_values: Mapping[str, str] = stored.get(notifications.SECRETS) or {}
    return secret_values


def _variable(variables: Mapping[str, str], name: str) -> str:
    """
    Raises:
        NeverSent: its value was removed from the workspace, or left out of the backup that this
            server was restored from.
    """
    value = variables.get(name, "")
    if value in ("", secret_variables.LEFT_OUT, secret_variables.HIDDEN):
        raise NeverSent(f"the value of `{name}` is not known any more")
    return value
