"""Who is told of a job's end, as job files and Azure's clients write it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import job_spec, notification_settings
from torchyard.jobs.spec.notification_settings import Recipient, WebhookUrl, parse_url

ALL = ("Completed", "Failed", "Canceled")
JOB: dict[str, Any] = {"command": "true", "environment": "python"}
SECRET = {"environment_variables": {"HOOK_SECRET": "correct horse", "PLAIN": "plain text"}}


def _recipients(**keys: Any) -> tuple[Recipient, ...]:
    return job_spec.read({**JOB, **keys}).recipients


def _refused(**keys: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as refused:
        _recipients(**keys)
    return refused.value


def test_emails_of_a_job_file() -> None:
    settings = {"email_on": ["JobFailed", "jobcancelled"], "emails": ["ann@a.org", "bo@b.org"]}
    on = ("Failed", "Canceled")
    assert _recipients(notification_settings=settings) == (
        Recipient(on, email="ann@a.org"),
        Recipient(on, email="bo@b.org"),
    )


def test_webhooks_of_a_job_file_and_of_a_property() -> None:
    items = [
        {"url": "https://a.org/hook", "on": "failed", "secret_env": "HOOK_SECRET"},
        {"url": "http://b.org:8080/x?y=1"},
    ]
    recipients = (
        Recipient(("Failed",), url="https://a.org/hook", secret_env="HOOK_SECRET"),
        Recipient(ALL, url="http://b.org:8080/x?y=1"),
    )
    assert _recipients(torchyard={"notify": items}, **SECRET) == recipients
    properties = {"torchyard.notify": json.dumps(items)}
    assert _recipients(properties=properties, **SECRET) == recipients


def test_a_url_that_is_a_secret_is_named_by_its_variable() -> None:
    keys = {
        "environment_variables": {"CHAT_URL": "https://chat.org/T0/B0/x"},
        "properties": {"torchyard.secrets": "CHAT_URL"},
        "torchyard": {"notify": [{"url_env": "CHAT_URL"}]},
    }
    (recipient,) = _recipients(**keys)
    assert recipient == Recipient(ALL, url_env="CHAT_URL")
    assert "chat.org" not in json.dumps(recipient.to_json()) + recipient.label


def test_a_recipient_is_read_as_it_was_written() -> None:
    recipient = Recipient(("Failed",), url="https://a.org/", secret_env="S")
    document = json.loads(json.dumps(recipient.to_json()))
    assert notification_settings.from_json(document) == recipient


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"emails": ["a@b.org"]}, "no `email_on`"),
        ({"email_on": ["JobFailed"]}, "no `emails`"),
        ({"email_on": ["JobDone"], "emails": ["a@b.org"]}, "`JobDone` is not a valid `email_on`"),
        ({"email_on": 3, "emails": ["a@b.org"]}, "`email_on` must be a list"),
        ({"email_on": ["JobFailed"], "emails": ["Ann <a@b.org>"]}, "not an e-mail address"),
        ({"email_on": ["JobFailed"], "emails": ["a@b.org\nBcc: c@d.org"]}, "not an e-mail"),
        ({"email_on": ["JobFailed"], "emails": ["a@b.org,c@d.org"]}, "not an e-mail address"),
        ({"email_on": ["JobFailed"], "emails": [3]}, "not an e-mail address"),
        ({"email_on": ["JobFailed"], "emails": [f"a{n}@b.org" for n in range(99)]}, "499"),
        ({"webhooks": {"x": {"webhook_type": "AzureDevOps"}}}, "webhooks` is not served"),
        ({"sms": ["1"]}, "unknown key `sms`"),
        ("a@b.org", "`notification_settings` must be a mapping"),
    ],
)
def test_what_is_wrong_with_emails_is_named(settings: Any, says: str) -> None:
    assert says in _refused(notification_settings=settings).message


@pytest.mark.parametrize(
    ("notify", "says"),
    [
        ("https://a.org", "is not a list of webhooks"),
        ("{}", "must be a list of webhooks"),
        (["https://a.org"], "must be a mapping"),
        ([{"url": "https://a.org", "to": "x"}], "`to`"),
        ([{}], "either `url` or `url_env`"),
        ([{"url": "https://a.org", "url_env": "HOOK_SECRET"}], "either `url` or `url_env`"),
        ([{"url": "https://a.org", "on": ["finished"]}], "`finished` is not how a job ends"),
        ([{"url": "https://a.org", "secret_env": "HOOK_SECRETS"}], "no such variable"),
        ([{"url": "https://a.org", "secret_env": "PLAIN"}], "not a secret variable"),
        ([{"url_env": "HOOK_SECRET"}], "the value of `HOOK_SECRET` is not the URL"),
        ([{"url": "https://a.org"}] * 17, "17 webhooks"),
    ],
)
def test_what_is_wrong_with_webhooks_is_named(notify: Any, says: str) -> None:
    error = _refused(torchyard={"notify": notify}, **SECRET)
    assert says in error.message
    assert error.hint and "correct horse" not in error.message + error.hint


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.org/", "file:///etc/passwd", "https://", "https:///x", "//a.org/", "a.org",
        "https://user@a.org/", "https://user:word@a.org/", "https://a.org:0/",
        "https://a.org:99999/",
        "https://a.org:x/", "https://a.org/ HTTP/1.1\r\nX: y", "https://a.org/\tx", "https://ä.org/",
        "https://[::1/", "https://[::1%25eth0]/", "https://a_b!.org/",
        "https://a.org/" + "x" * 3000,
    ],
)  # fmt: skip
def test_a_url_that_can_be_no_webhook_is_refused(url: str) -> None:
    assert parse_url(url) is None
    assert "is not the URL of a webhook" in _refused(torchyard={"notify": [{"url": url}]}).message


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://a.org", WebhookUrl("https", "a.org", 443, "/")),
        ("HTTP://A.org:8080/x?y=1#z", WebhookUrl("http", "a.org", 8080, "/x?y=1")),
        ("https://[2606:4700::1]:444/", WebhookUrl("https", "2606:4700::1", 444, "/")),
    ],
)
def test_the_parts_of_a_url(url: str, parts: WebhookUrl) -> None:
    assert parse_url(url) == parts
