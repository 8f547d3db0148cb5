"""Messages about every job of a workspace, beside those that jobs name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.messages import receivers
from jobs.messages.receivers import Webhooks
from jobs.support import Worker, attempt_of, submit
from torchyard.base import addresses
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.messages import checks, webhooks
from torchyard.jobs.messages.sender import Sender
from torchyard.jobs.messages.settings import MessageSettings
from torchyard.jobs.records import message_store
from torchyard.jobs.records.types import Job
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.jobs.spec import notification_settings
from torchyard.jobs.spec.notification_settings import Recipient
from torchyard.workspaces import actions as workspaces

LIMIT_S = 120.0
LOOPBACK = addresses.parse_networks(["127.0.0.0/8"], "allow_networks")
ALL = ("Completed", "Failed", "Canceled")
SECRET: dict[str, Any] = {"environment_variables": {"HOOK_SECRET": "of the job itself"}}


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    messages = MessageSettings(allow_networks=LOOPBACK)
    return replace(support.make_services(tmp_path, db, clock), messages=messages)


@pytest.fixture
def hook() -> Iterator[Webhooks]:
    with receivers.webhooks() as state:
        yield state


def _set(services: Services, **changes: Any) -> None:
    def check(stored: Any) -> None:
        checks.check_workspace(services.messages, stored)

    workspaces.update(services.db, "default", changes, check)


def _end(services: Services, scheduler: Scheduler, exit_code: int = 0, **keys: Any) -> Job:
    job = submit(services, **keys)
    scheduler.run_round()
    worker = Worker(services, attempt_of(services, job))
    if exit_code:
        worker.fails(exit_code)
    else:
        worker.whole_life()
    return support.again(services, job)


def _send(services: Services) -> None:
    sender = Sender(services.db, services.clock, services.messages)
    sender.run_round()
    sender.wait(LIMIT_S)


def _waiting(services: Services, job: Job) -> int:
    with services.db.read() as connection:
        return message_store.count(connection, job.id)


def test_a_workspaces_webhook_is_told_of_a_job_that_names_nobody(
    services: Services, scheduler: Scheduler, hook: Webhooks
) -> None:
    _set(
        services,
        notify=[{"url_env": "CHAT_URL", "secret_env": "HOOK_SECRET"}],
        notify_secrets={"CHAT_URL": hook.url, "HOOK_SECRET": "correct horse"},
    )
    job = _end(services, scheduler, 3)
    _send(services)
    (request,) = hook.requests
    body = json.loads(request.body)
    assert (body["event"], body["job"]["name"]) == ("job.failed", job.name)
    signed = webhooks.signature(
        "correct horse", request.headers["X-Torchyard-Timestamp"], request.body
    )
    assert request.headers["X-Torchyard-Signature"] == f"sha256={signed}"
    assert _waiting(services, job) == 0


def test_a_recipient_of_both_is_told_once(
    services: Services, scheduler: Scheduler, hook: Webhooks
) -> None:
    _set(
        services,
        notify=[{"url": hook.url, "secret_env": "HOOK_SECRET"}],
        notify_secrets={"HOOK_SECRET": "correct horse"},
        notification_settings={"email_on": ["JobFailed"], "emails": ["ann@example.org"]},
    )
    job = _end(
        services,
        scheduler,
        3,
        torchyard={"notify": [{"url": hook.url, "secret_env": "HOOK_SECRET"}]},
        notification_settings={
            "email_on": ["JobFailed"],
            "emails": ["Ann@Example.org", "bob@example.org"],
        },
        **SECRET,
    )
    # The webhook, Ann and Bob.
    assert _waiting(services, job) == 3
    _send(services)
    (request,) = hook.requests
    timestamp = request.headers["X-Torchyard-Timestamp"]
    signed = webhooks.signature("correct horse", timestamp, request.body)
    assert request.headers["X-Torchyard-Signature"] == f"sha256={signed}"


@pytest.mark.parametrize(
    ("workspace_secret", "job_secret", "is_workspaces"),
    [("", "", True), ("A", "", True), ("", "B", False), ("A", "B", True)],
)
def test_of_two_webhooks_with_one_url_the_signed_one_is_kept(
    workspace_secret: str, job_secret: str, is_workspaces: bool
) -> None:
    url = {"url": "https://hooks.example.org/jobs", "secret_env": workspace_secret}
    stored = {"notify": [url], "notify_secrets": {"A": "correct horse"}}
    of_job = Recipient(ALL, url="https://HOOKS.example.org:443/jobs", secret_env=job_secret)
    (message,) = notification_settings.to_send("Failed", [of_job], {"B": "b"}, stored)
    assert message.of_workspace is is_workspaces


def test_a_recipient_for_other_ends_hides_no_other(services: Services) -> None:
    stored = {"notify": [{"url": "https://hooks.example.org/", "on": ["completed"]}]}
    of_job = Recipient(("Failed",), url="https://hooks.example.org/")
    assert notification_settings.to_send("Failed", [of_job], {}, stored) == [of_job]


def test_a_removed_recipient_is_told_no_more(
    services: Services, scheduler: Scheduler, hook: Webhooks
) -> None:
    _set(services, notify=[{"url": hook.url}])
    _set(services, notify=None)
    assert _waiting(services, _end(services, scheduler)) == 0
    assert workspaces.get(services.db, "default").notifications == {}


def test_secrets_are_merged_and_go_with_their_webhook(services: Services) -> None:
    url = "https://hooks.example.org/jobs"
    webhook = {"url": url, "secret_env": "HOOK_SECRET"}
    _set(services, notify=[webhook], notify_secrets={"HOOK_SECRET": "correct horse"})
    _set(services, notify_secrets={"HOOK_SECRET": "*****"}, notify=[{**webhook, "on": "failed"}])
    stored = workspaces.get(services.db, "default").notifications
    assert stored["notify_secrets"] == {"HOOK_SECRET": "correct horse"}
    _set(services, notify=[{"url": url}])
    assert "notify_secrets" not in workspaces.get(services.db, "default").notifications


@pytest.mark.parametrize(
    ("changes", "message", "at"),
    [
        ({"notify": {}}, "", ()),
        ({"notify": {"url": "x"}}, "must be a list of webhooks", ("notify",)),
        ({"notify": [{"url": "ftp://a/b"}]}, "not the URL of a webhook", ("notify", 0, "url")),
        ({"notify": [{"url": "http://10.0.0.1/"}]}, "not at an address", ("notify",)),
        ({"notify": [{"url_env": "CHAT"}]}, "no such secret", ("notify", 0, "url_env")),
        ({"notify_secrets": {"CHAT": "https://a.example/"}}, "names the secret", None),
        ({"notify_secrets": ["CHAT"]}, "`notify_secrets`", None),
        ({"notify": [{"url": "https://a/", "on": "ends"}]}, "how a job ends", ("notify", 0, "on")),
        ({"notification_settings": {"emails": ["ann"]}}, "not an e-mail", None),
        ({"notification_settings": {"email_on": ["JobFailed"]}}, "no `emails`", None),
        ({"notification_settings": {"webhooks": {"a": 1}}}, "webhooks` is not served", None),
        ({"notification_settings": "ann@example.org"}, "`notification_settings`", None),
    ],
)  # fmt: skip
def test_what_a_job_may_not_name_a_workspace_may_not(
    services: Services, changes: dict[str, Any], message: str, at: tuple[str | int, ...] | None
) -> None:
    if not message:
        _set(services, **changes)
        return
    with pytest.raises(InvalidSpec, match=message.replace("`", ".")) as refused:
        _set(services, **changes)
    assert refused.value.hint
    if at is not None:
        assert tuple(refused.value.at) == at
    assert workspaces.get(services.db, "default").notifications == {}
