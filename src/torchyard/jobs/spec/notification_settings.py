"""Who is told of a job's end: `notification_settings` and `torchyard.notify`.

Owns: reading both of a job, and of a workspace for all of its jobs; the recipients that they make,
what a webhook's URL may be.
Leaves: sending to messages/, which addresses a server connects to to messages/webhooks.py.
Always: a secret is named by the variable that holds it; neither a recipient nor an error has it;
nobody is told twice of the same end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from torchyard.base.documents import secret_variables
from torchyard.base.documents.models import At, By, Choice, Document, Key, Refused, Text, rule
from torchyard.base.errors import InvalidSpec, did_you_mean, nearest
from torchyard.base.fields import described
from torchyard.jobs.spec import own_properties
from torchyard.jobs.spec.parts import JobPart, part
from torchyard.workspaces import notifications

KEY = "notification_settings"
NOTIFY = f"{own_properties.PREFIX}notify"
COMPLETED, FAILED, CANCELED = "Completed", "Failed", "Canceled"
"""The statuses in which a job ends."""
_EMAIL_EVENTS = {"JobCompleted": COMPLETED, "JobFailed": FAILED, "JobCancelled": CANCELED}
_EVENTS = {"completed": COMPLETED, "failed": FAILED, "canceled": CANCELED, "cancelled": CANCELED}
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_{|}~.-]{1,64}@[A-Za-z0-9.-]{1,255}\Z")
# Azure's limit, with the commas between them.
_LONGEST_ADDRESSES = 499
_MOST_WEBHOOKS = 16
_LONGEST_NOTIFY = 32 << 10
_LONGEST_URL = 2048
_URL = re.compile(r"[!-~]+\Z")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9.])?\Z|[0-9A-Fa-f:.]{2,45}\Z")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Recipient:
    """Exactly one of `email`, `url` and `url_env` is set; `on` has statuses of ended jobs.

    `url_env` and `secret_env` are variables of the job, which hold a URL and what signs messages;
    with `of_workspace`, they are secrets of the workspace.
    """

    on: tuple[str, ...]
    email: str = ""
    url: str = ""
    url_env: str = ""
    secret_env: str = ""
    of_workspace: bool = False

    @property
    def kind(self) -> str:
        return "email" if self.email else "webhook"

    @property
    def label(self) -> str:
        """How notices call it: without a path, which may be a secret."""
        whose = "the workspace's" if self.of_workspace else "the"
        if self.email:
            return f"{whose} e-mail to {self.email}"
        if self.url_env:
            return f"{whose} webhook ${self.url_env}"
        return f"{whose} webhook at {urlsplit(self.url).netloc}"

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value}


class _Variables(NamedTuple):
    """What `url_env` and `secret_env` may name, and how errors call it."""

    values: Mapping[str, str]
    secret_names: frozenset[str]
    none_such: str
    add: str


class WebhookUrl(NamedTuple):
    """The parts of a URL; `target` is its path and query, as a request names them."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def has_default_port(self) -> bool:
        return self.port == _PORTS[self.scheme]


def from_json(document: Mapping[str, Any]) -> Recipient:
    """A recipient as `to_json` gave it."""
    return Recipient(**{**document, "on": tuple(document["on"])})


class EmailEvents(Choice):
    """One or several of the values; the statuses that they stand for."""

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> Any:
        written, expected = body[key], "of JobCompleted, JobFailed and JobCancelled"
        events = [written] if isinstance(written, str) else _list(written, (*at, key), expected)
        values = [super(EmailEvents, self).read({key: each}, key, at, "") for each in events]
        return tuple(dict.fromkeys(_EMAIL_EVENTS[value] for value in values if value))


def _addresses(value: Any, at: At) -> tuple[str, ...]:
    addresses = _list(value, at, "of e-mail addresses")
    for index, address in enumerate(addresses):
        if not isinstance(address, str) or not _ADDRESS.match(address):
            raise InvalidSpec(
                f"{described(address)} is not an e-mail address",
                "write `name@example.org`, without a display name",
                at=(*at, index),
            )
    if len(",".join(addresses)) > _LONGEST_ADDRESSES:
        raise InvalidSpec(
            f"`emails` has more than {_LONGEST_ADDRESSES} characters",
            "name a mailing list",
            at=at,
        )
    return tuple(dict.fromkeys(addresses))


class NotificationFile(JobPart):
    path_in_file: ClassVar[str] = KEY

    email_on: Annotated[
        tuple[str, ...], EmailEvents(JobCompleted=Key(), JobFailed=Key(), JobCancelled=Key())
    ] = ()
    emails: Annotated[
        tuple[str, ...],
        By(_addresses),
        Key(
            "addresses, 499 characters at most; the server needs a mail server, or a notice says so"
        ),
    ] = ()
    webhooks: Annotated[
        None,
        Refused("no messages go to Azure DevOps: write `torchyard: {notify: [{url: https://…}]}`"),
    ] = None

    @rule("email_on", "emails")
    def _both(self) -> None:
        if bool(self.email_on) != bool(self.emails):
            present, absent = ("emails", "email_on") if self.emails else ("email_on", "emails")
            raise InvalidSpec(
                f"`{KEY}` has `{present}` and no `{absent}`",
                "write `email_on: [JobCompleted, JobFailed, JobCancelled]`"
                if self.emails
                else "write `emails: [name@example.org]`",
            )

    @property
    def recipients(self) -> list[Recipient]:
        return [Recipient(self.email_on, email=address) for address in self.emails]


PART = part(NotificationFile)


def read_workspace(stored: Mapping[str, Any]) -> tuple[Recipient, ...]:
    """Who is told of every job of a workspace.

    Args:
        stored: the keys of workspaces/notifications.py.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    secret_values = dict(stored.get(notifications.SECRETS) or {})
    at = (notifications.NOTIFY,)
    items = _list(stored.get(notifications.NOTIFY), at, "of webhooks")
    variables = _Variables(
        secret_values,
        frozenset(secret_values),
        f"`{notifications.SECRETS}` has no such secret",
        f"add it to `{notifications.SECRETS}`",
    )
    settings = PART.read({KEY: stored.get(KEY)}, KEY, (), None)
    recipients = [*settings.recipients, *_read_webhooks(items, at, variables)]
    return tuple(replace(recipient, of_workspace=True) for recipient in recipients)


def parse_url(url: str) -> WebhookUrl | None:
    """The parts of a webhook's URL; None for what can't be one."""
    if len(url) > _LONGEST_URL or not _URL.match(url):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    scheme, host = parts.scheme.lower(), parts.hostname or ""
    if scheme not in _PORTS or not _HOST.match(host) or port == 0 or "@" in parts.netloc:
        return None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookUrl(scheme, host, port or _PORTS[scheme], target)


def webhooks(job: Mapping[str, Any], variables: Mapping[str, str]) -> list[Recipient]:
    """
    Args:
        job: with its mapping `torchyard:` as properties.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    properties = job.get("properties")
    written = properties.get(NOTIFY) if isinstance(properties, Mapping) else None
    if written is None:
        return []
    at = ("properties", NOTIFY)
    secret_values = secret_variables.values({**job, "environment_variables": dict(variables)})
    known_variables = _Variables(
        variables,
        frozenset(name for name, value in variables.items() if value in secret_values),
        "the job has no such variable",
        f"add it to `environment_variables` and to `{secret_variables.MARKED}`",
    )
    return _read_webhooks(_items(written, at), at, known_variables)


def _read_webhooks(items: list[Any], at: At, variables: _Variables) -> list[Recipient]:
    if len(items) > _MOST_WEBHOOKS:
        raise InvalidSpec(
            f"`{at[-1]}` has {len(items)} webhooks", f"name at most {_MOST_WEBHOOKS}", at=at
        )
    return [_webhook(item, (*at, index), variables) for index, item in enumerate(items)]


def _items(written: Any, at: At) -> list[Any]:
    try:
        items = json.loads(str(written)[:_LONGEST_NOTIFY])
    except (ValueError, RecursionError) as error:
        raise InvalidSpec(
            f"`{NOTIFY}` is not a list of webhooks",
            "write `torchyard: {notify: [{url: https://example.org/hook}]}`; as a property, the "
            "list is JSON",
            at=at,
        ) from error
    return _list(items, at, "of webhooks")


class Webhook(Document):
    subject: ClassVar[str] = "a webhook"

    url: Annotated[str, Text(), Key("where messages go")] = ""
    url_env: Annotated[str, Text(), Key("the secret variable that holds it")] = ""
    on: Annotated[Any, Key("`completed`, `failed`, `canceled`; all when left out")] = None
    secret_env: Annotated[str, Text(), Key("the secret variable that signs messages")] = ""


def _webhook(item: Any, at: At, variables: _Variables) -> Recipient:
    file = Webhook.read(item, at)
    url, url_env, secret_env = file.url, file.url_env, file.secret_env
    if bool(url) == bool(url_env):
        raise InvalidSpec(
            "a webhook needs either `url` or `url_env`",
            "`url: https://…`, or the name of the variable that holds it",
            at=at,
        )
    for key, name in (("url_env", url_env), ("secret_env", secret_env)):
        if name and name not in variables.secret_names:
            guess = nearest(name, list(variables.values))
            raise InvalidSpec(
                f"`{key}` names `{name[:80]}`, which is not a secret variable of the job"
                if name in variables.values
                else f"`{key}` names `{name[:80]}`, but {variables.none_such}",
                f"did you mean `{guess}`?"
                if guess and name not in variables.values
                else variables.add,
                at=(*at, key),
            )
    written = url or variables.values[url_env]
    if (
        written not in (secret_variables.HIDDEN, secret_variables.LEFT_OUT)
        and parse_url(written) is None
    ):
        shown = f"`{url[:80]}`" if url else f"the value of `{url_env}`"
        raise InvalidSpec(
            f"{shown} is not the URL of a webhook",
            "write `https://host/path` or `http://host/path`, without a user or password in it",
            at=(*at, "url" if url else "url_env"),
        )
    return Recipient(_events(file.on, (*at, "on")), "", url, url_env, secret_env)


def _events(value: Any, at: At) -> tuple[str, ...]:
    words = (
        [value] if isinstance(value, str) else _list(value, at, "of failed, completed, canceled")
    )
    for word in words:
        if str(word).lower() not in _EVENTS:
            raise InvalidSpec(
                f"{described(word)} is not how a job ends",
                did_you_mean(str(word), _EVENTS, "use completed, failed and canceled"),
                at=at,
            )
    events = (_EVENTS[str(word).lower()] for word in words or _EVENTS)
    return tuple(dict.fromkeys(events))


def _list(value: Any, at: At, expected: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidSpec(f"`{at[-1]}` must be a list {expected}", f"not {described(value)}", at=at)
    return value


def to_send(
    status: str,
    recipients: Sequence[Recipient],
    variables: Mapping[str, str],
    stored: Mapping[str, Any],
) -> list[Recipient]:
    """Those who are told when a job ends in this status: each once.

    Of two webhooks with the same URL the workspace's is kept, so that no job can put another
    signature in its place, unless the job's alone is signed.

    Args:
        recipients, variables: of the job.
        stored: the keys of its workspace; see workspaces/notifications.py.
    """
    secret_values = stored.get(notifications.SECRETS) or {}
    by_address: dict[object, Recipient] = {}
    for recipient in (*read_workspace(stored), *recipients):
        if status not in recipient.on:
            continue
        values = secret_values if recipient.of_workspace else variables
        url = recipient.url or values.get(recipient.url_env, "")
        address = recipient.email.casefold() or parse_url(url) or url
        present = by_address.get(address)
        if present is None or (recipient.secret_env and not present.secret_env):
            by_address[address] = recipient
    return list(by_address.values())
