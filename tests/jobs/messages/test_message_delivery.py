"""Jobs end, and their recipients are told once: by real webhooks and a real mail server."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from app.test_listeners import CERTIFICATE, KEY
from eventually import eventually
from jobs import support
from jobs.messages import receivers
from jobs.messages.receivers import Mails, Webhooks
from jobs.support import Worker, attempt_of, submit
from torchyard.base import addresses
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec
from torchyard.jobs import actions
from torchyard.jobs.messages import webhooks
from torchyard.jobs.messages.sender import Sender
from torchyard.jobs.messages.settings import NO_TLS, STARTTLS, MessageSettings, SmtpSettings
from torchyard.jobs.records import message_store
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

LIMIT_S = 120.0
LOOPBACK = addresses.parse_networks(["127.0.0.0/8"], "allow_networks")
PAGE = "https://yard.example.org"
SECRET: dict[str, Any] = {"environment_variables": {"HOOK_SECRET": "correct horse"}}
EMAILS: dict[str, Any] = {"email_on": ["JobCompleted", "JobFailed"], "emails": ["ann@example.org"]}


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    messages = MessageSettings(allow_networks=LOOPBACK, page_url=PAGE)
    return replace(support.make_services(tmp_path, db, clock), messages=messages)


@pytest.fixture
def hook() -> Iterator[Webhooks]:
    with receivers.webhooks() as state:
        yield state


@pytest.fixture
def mail() -> Iterator[Mails]:
    with receivers.mails() as state:
        yield state


def _with_mail(services: Services, mail: Mails, **changes: Any) -> Services:
    smtp = SmtpSettings("127.0.0.1", mail.port, NO_TLS, "yard@example.org")
    return replace(services, messages=replace(services.messages, smtp=replace(smtp, **changes)))


def _end(services: Services, scheduler: Scheduler, exit_code: int = 0, **keys: Any) -> Job:
    """A job that has ended, and whose messages wait."""
    job = submit(services, **keys)
    scheduler.run_round()
    worker = Worker(services, attempt_of(services, job))
    if exit_code:
        worker.fails(exit_code)
    else:
        worker.whole_life()
    return support.again(services, job)


def _send(services: Services) -> int:
    """One round; how many messages were tried."""
    sender = Sender(services.db, services.clock, services.messages)
    count = sender.run_round()
    sender.wait(LIMIT_S)
    return count


def _waiting(services: Services, job: Job) -> int:
    with services.db.read() as connection:
        return message_store.count(connection, job.id)


def _notices(services: Services, job: Job) -> list[str]:
    return list(notices_of(actions.events(services.db, job)))


def _notify(hook: Webhooks, **keys: Any) -> dict[str, Any]:
    return {"notify": [{"url": hook.url, **keys}]}


def test_a_webhook_gets_how_the_job_ended(
    services: Services, scheduler: Scheduler, hook: Webhooks
) -> None:
    notify = _notify(hook, secret_env="HOOK_SECRET")
    job = _end(services, scheduler, 3, torchyard=notify, display_name="a <b>", **SECRET)
    assert job.status is Status.FAILED
    assert (_send(services), _waiting(services, job)) == (1, 0)
    (request,) = hook.requests
    body = json.loads(request.body)
    assert request.path == "/hook?team=vision"
    assert body["event"] == "job.failed"
    assert body["id"] == request.headers["X-Torchyard-Message"]
    described = body["job"]
    assert (described["name"], described["display_name"]) == (job.name, "a <b>")
    assert (described["workspace"], described["experiment"]) == ("default", "Default")
    assert (described["owner"], described["status"]) == ("me", "Failed")
    assert (described["exit_code"], described["cause"]["code"]) == (3, "rank_failed")
    assert described["url"] == f"{PAGE}/ui/workspaces/default/jobs/{job.name}"
    signed = request.headers["X-Torchyard-Timestamp"].encode() + b"." + request.body
    signature = hmac.new(b"correct horse", signed, hashlib.sha256).hexdigest()
    assert request.headers["X-Torchyard-Signature"] == f"sha256={signature}"
    assert _send(services) == 0


@pytest.mark.parametrize(("on", "count"), [("failed", 0), ("completed", 1)])
def test_only_the_ends_that_a_recipient_wants_are_sent(
    services: Services, scheduler: Scheduler, hook: Webhooks, on: str, count: int
) -> None:
    _end(services, scheduler, torchyard=_notify(hook, on=[on]))
    assert (_send(services), len(hook.requests)) == (count, count)


def test_a_job_that_is_canceled_in_the_queue_is_told(services: Services, hook: Webhooks) -> None:
    job = submit(services, torchyard=_notify(hook, on=["canceled"]))
    actions.cancel(services, job.workspace, job.name)
    assert support.again(services, job).status is Status.CANCELED
    assert _send(services) == 1
    assert json.loads(hook.requests[0].body)["event"] == "job.canceled"


def test_a_job_without_recipients_has_no_message(services: Services, scheduler: Scheduler) -> None:
    assert _waiting(services, _end(services, scheduler)) == 0


def test_a_secret_of_the_job_is_in_no_message(
    services: Services, scheduler: Scheduler, hook: Webhooks
) -> None:
    _end(services, scheduler, torchyard=_notify(hook), display_name="x correct horse", **SECRET)
    _send(services)
    assert b"correct horse" not in hook.requests[0].body


def test_a_webhook_that_fails_is_tried_again_with_the_same_id(
    services: Services, scheduler: Scheduler, hook: Webhooks, clock: FakeClock
) -> None:
    hook.statuses = [500, 503]
    job = _end(services, scheduler, torchyard=_notify(hook))
    assert (_send(services), _send(services)) == (1, 0)
    clock.advance(11)
    assert (_send(services), _waiting(services, job)) == (1, 1)
    clock.advance(11)
    assert _send(services) == 0, "the pauses grow"
    clock.advance(11)
    assert (_send(services), _waiting(services, job)) == (1, 0)
    assert len({request.headers["X-Torchyard-Message"] for request in hook.requests}) == 1
    assert len(hook.requests) == 3


def test_a_message_is_given_up_after_a_day_with_a_notice(
    services: Services, scheduler: Scheduler, hook: Webhooks, clock: FakeClock
) -> None:
    hook.statuses = [500] * 1000
    job = _end(services, scheduler, torchyard=_notify(hook))
    for _ in range(26):
        _send(services)
        clock.advance(3601)
    assert _waiting(services, job) == 0
    (notice,) = _notices(services, job)
    assert notice.startswith(f"the webhook at 127.0.0.1:{hook.port} was tried ")
    assert notice.endswith("is given up: it answered 500")
    assert 24 <= len(hook.requests) <= 26


def test_no_redirect_is_followed(services: Services, scheduler: Scheduler, hook: Webhooks) -> None:
    hook.statuses, hook.location = [302], hook.url
    job = _end(services, scheduler, torchyard=_notify(hook))
    _send(services)
    assert (len(hook.requests), _waiting(services, job)) == (1, 0)
    assert "redirects are not followed" in _notices(services, job)[0]


def test_a_private_address_is_refused_unless_the_owner_allows_it(
    services: Services, scheduler: Scheduler, hook: Webhooks
) -> None:
    strict = replace(services, messages=MessageSettings())
    for url in (hook.url, f"http://localhost:{hook.port}", "http://169.254.169.254/latest"):
        with pytest.raises(InvalidSpec, match="not at an address of the internet"):
            submit(strict, torchyard={"notify": [{"url": url}]})
    # A setting that changed, or a name: the address is checked again when a message is sent.
    job = _end(services, scheduler, torchyard=_notify(hook))
    _send(strict)
    assert (hook.requests, _waiting(services, job)) == ([], 0)
    assert "not at an address of the internet" in _notices(services, job)[0]


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "hook.example"])
def test_a_name_that_resolves_to_a_private_address_is_refused(
    services: Services,
    scheduler: Scheduler,
    hook: Webhooks,
    host: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.getaddrinfo

    def getaddrinfo(name: Any, *rest: Any, **more: Any) -> Any:
        return real("127.0.0.1" if name == "hook.example" else name, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    strict = replace(services, messages=MessageSettings())
    notify = {"notify": [{"url": f"http://{host}:{hook.port}/"}]}
    job = _end(strict, scheduler, torchyard=notify)
    _send(strict)
    assert (hook.requests, _waiting(services, job)) == ([], 0)
    assert "not at an address of the internet" in _notices(services, job)[0]


def test_a_name_is_resolved_once_and_only_an_allowed_address_is_connected_to(
    services: Services, scheduler: Scheduler, hook: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    tcp = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")

    def getaddrinfo(name: str, port: int, *_: Any, **__: Any) -> Any:
        names.append(name)
        return [(*tcp, (address, port)) for address in ("10.255.255.1", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    notify = {"notify": [{"url": f"http://hook.example:{hook.port}/"}]}
    job = _end(services, scheduler, torchyard=notify)
    _send(services)
    assert _waiting(services, job) == 0
    assert [request.headers["Host"] for request in hook.requests] == [f"hook.example:{hook.port}"]
    assert names.count("hook.example") == 1


def test_a_webhook_that_answers_byte_by_byte_is_cut_off(
    services: Services, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "LIMIT_S", 1.0)
    over = threading.Event()

    def dribble(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with closing(connection):
            while not over.wait(0.1):
                try:
                    connection.sendall(b"H")
                except OSError:
                    return

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=dribble, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        job = _end(services, scheduler, torchyard={"notify": [{"url": url}]})
        _send(services)
        assert _waiting(services, job) == 1
        over.set()
        # Where no connection was made in time, it still waits for one.
        socket.create_connection(listener.getsockname()).close()
        thread.join()


def test_of_an_answer_only_the_status_is_read(services: Services, scheduler: Scheduler) -> None:
    """One that goes on without end holds up nothing, and what it says is not read."""
    over = threading.Event()

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\nno header")
            over.wait()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            job = _end(services, scheduler, torchyard={"notify": [{"url": url}]})
            _send(services)
            assert _waiting(services, job) == 0
        finally:
            over.set()
            thread.join()


def test_what_does_not_speak_http_is_tried_again(
    services: Services, scheduler: Scheduler, mail: Mails
) -> None:
    notify = {"notify": [{"url": f"http://127.0.0.1:{mail.port}/"}]}
    job = _end(services, scheduler, torchyard=notify)
    _send(services)
    assert _waiting(services, job) == 1


def _tls(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context, str(tmp_path / "cert.pem")


def test_a_certificate_is_checked(
    services: Services, scheduler: Scheduler, clock: FakeClock, tmp_path: Path
) -> None:
    context, ca_cert = _tls(tmp_path)
    with receivers.webhooks(context) as hook:
        url = f"https://localhost:{hook.port}/"
        job = _end(services, scheduler, torchyard={"notify": [{"url": url}]})
        _send(services)
        assert (hook.requests, _waiting(services, job)) == ([], 1)
        clock.advance(11)
        _send(replace(services, messages=replace(services.messages, ca_cert=ca_cert)))
        assert (len(hook.requests), _waiting(services, job)) == (1, 0)


def test_an_e_mail_says_how_the_job_ended(
    services: Services, scheduler: Scheduler, mail: Mails
) -> None:
    services = _with_mail(services, mail)
    job = _end(services, scheduler, 3, notification_settings=EMAILS, display_name="night run")
    assert (_send(services), _waiting(services, job)) == (1, 0)
    ((sender, recipient, data),) = mail.envelopes
    assert ("<yard@example.org>" in sender, "<ann@example.org>" in recipient) == (True, True)
    email = message_from_bytes(data, policy=default)
    assert (email["To"], email["From"]) == ("ann@example.org", "yard@example.org")
    assert email["Subject"] == "Job night run failed"
    text = email.get_content()
    assert f"Job: {job.name}" in text and "Cause: rank 0 exited with code 3" in text
    assert f"Page: {PAGE}/ui/workspaces/default/jobs/{job.name}" in text
    assert _notices(services, job) == []


@pytest.mark.parametrize(
    "name",
    [
        "x\r\nBcc: eve@example.org",
        "x\nBcc: eve@example.org\n\nhello",
        "x\u2028Bcc: eve",
        "\x1b[31m\x85Bcc: eve",
    ],
)
def test_a_hostile_name_adds_nothing_to_an_e_mail(
    services: Services, scheduler: Scheduler, mail: Mails, name: str
) -> None:
    services = _with_mail(services, mail)
    shown = name.encode("utf-8", "replace").decode()
    _end(services, scheduler, notification_settings=EMAILS, display_name=shown)
    assert _send(services) == 1
    ((_, recipient, data),) = mail.envelopes
    email = message_from_bytes(data, policy=default)
    assert "ann@example.org" in recipient
    assert email["Bcc"] is None and email["To"] == "ann@example.org"
    assert "\n" not in email["Subject"]


def test_each_address_gets_an_e_mail_of_its_own(
    services: Services, scheduler: Scheduler, mail: Mails
) -> None:
    services = _with_mail(services, mail)
    mail.answers = ["550 no such mailbox"]
    emails = {**EMAILS, "emails": ["ann@example.org", "bo@example.org"]}
    job = _end(services, scheduler, notification_settings=emails)
    assert (_send(services), _waiting(services, job)) == (2, 0)
    assert len(mail.envelopes) == 1
    assert "answered 550 no such mailbox" in _notices(services, job)[0]


def test_a_mail_server_that_refuses_for_now_is_asked_again(
    services: Services, scheduler: Scheduler, mail: Mails, clock: FakeClock
) -> None:
    services = _with_mail(services, mail)
    mail.answers = ["451 try later"]
    job = _end(services, scheduler, notification_settings=EMAILS)
    _send(services)
    assert _waiting(services, job) == 1
    clock.advance(11)
    _send(services)
    assert (_waiting(services, job), len(mail.envelopes)) == (0, 1)


def test_a_mail_server_gets_the_password_by_starttls(
    services: Services, scheduler: Scheduler, clock: FakeClock, tmp_path: Path
) -> None:
    context, ca_cert = _tls(tmp_path)
    password = tmp_path / "password"
    password.write_text("correct horse")
    password.chmod(0o600)
    with receivers.mails(context) as mail:
        login = {"host": "localhost", "tls": STARTTLS, "user": "yard", "password_file": password}
        services = _with_mail(services, mail, **login)
        job = _end(services, scheduler, notification_settings=EMAILS)
        _send(services)
        assert (mail.logins, _waiting(services, job)) == ([], 1), "its certificate is not known"
        clock.advance(11)
        services = replace(services, messages=replace(services.messages, ca_cert=ca_cert))
        _send(services)
        assert (len(mail.logins), len(mail.envelopes)) == (1, 1)


def test_without_a_mail_server_a_notice_says_what_to_set(services: Services) -> None:
    job = submit(services, notification_settings=EMAILS)
    (notice,) = _notices(services, job)
    assert "sends no e-mail" in notice and "`yard-server --messages`" in notice


def test_servers_of_one_database_send_a_message_once(
    services: Services, scheduler: Scheduler, hook: Webhooks
) -> None:
    jobs = [_end(services, scheduler, torchyard=_notify(hook)) for _ in range(3)]
    senders = [Sender(services.db, services.clock, services.messages) for _ in range(4)]
    starts = threading.Barrier(len(senders))

    def run(sender: Sender) -> None:
        starts.wait(60)
        sender.run_round()
        sender.wait(LIMIT_S)

    threads = [threading.Thread(target=run, args=(sender,)) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(hook.requests) == 3
    assert [_waiting(services, job) for job in jobs] == [0, 0, 0]


_KILLED = """
import sys
from torchyard.base.addresses import parse_networks
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.jobs.messages.sender import Sender
from torchyard.jobs.messages.settings import MessageSettings
settings = MessageSettings(allow_networks=parse_networks(["127.0.0.0/8"], "allow_networks"))
sender = Sender(Database(sys.argv[1]), FakeClock(), settings)
assert sender.run_round() == 1
sender.wait(600)
"""


def test_a_server_that_is_killed_while_it_sends_loses_no_message(
    services: Services, scheduler: Scheduler, hook: Webhooks, clock: FakeClock, database_url: str
) -> None:
    job = _end(services, scheduler, torchyard=_notify(hook))
    hook.go_on.clear()
    server = subprocess.Popen([sys.executable, "-c", _KILLED, database_url])
    try:
        assert hook.received.wait(LIMIT_S)
    finally:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
    hook.go_on.set()
    assert _send(services) == 0, "the claim of the killed one is not over"
    clock.advance(301)
    assert (_send(services), _waiting(services, job)) == (1, 0)
    assert len(hook.requests) == 2
    assert len({request.headers["X-Torchyard-Message"] for request in hook.requests}) == 1


def test_a_webhook_that_hangs_holds_up_no_e_mail_and_no_round(
    services: Services, scheduler: Scheduler, hook: Webhooks, mail: Mails
) -> None:
    services = _with_mail(services, mail)
    hook.go_on.clear()
    for _ in range(6):
        _end(services, scheduler, torchyard=_notify(hook))
    _end(services, scheduler, notification_settings=EMAILS)
    sender = Sender(services.db, services.clock, services.messages)
    assert sender.run_round() == 5, "four webhooks and the e-mail"
    eventually(lambda: mail.envelopes, "the e-mail")
    assert len(mail.envelopes) == 1
    hook.go_on.set()
    sender.wait(LIMIT_S)
