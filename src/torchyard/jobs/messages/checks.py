"""Check whom a job names at its submission, and whom a workspace names.

Owns: refusing webhooks at addresses that are never connected to, the notice that no e-mail is sent.
Leaves: names, which are resolved when a message is sent, to webhooks.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.base import addresses
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.messages import webhooks
from torchyard.jobs.messages.settings import MessageSettings
from torchyard.jobs.spec.notification_settings import (
    NOTIFY,
    Recipient,
    parse_url,
    read_workspace,
)
from torchyard.workspaces import notifications


def check_workspace(settings: MessageSettings, stored: Mapping[str, Any]) -> list[str]:
    """Return notices about messages of a workspace that are not sent.

    Args:
        stored: the keys of workspaces/notifications.py.

    Raises:
        InvalidSpec: a recipient is not valid, or never connected to.
    """
    return check(read_workspace(stored), settings, (notifications.NOTIFY,))


def check(
    recipients: Sequence[Recipient],
    settings: MessageSettings,
    at: Sequence[str] = ("properties", NOTIFY),
) -> list[str]:
    """Return notices about messages that are not sent.

    Raises:
        InvalidSpec: a webhook is at an address that the server does not connect to.
    """
    for recipient in recipients:
        url = parse_url(recipient.url) if recipient.url else None
        is_local_name = url is not None and url.host.lower().rstrip(".") == "localhost"
        address = "127.0.0.1" if is_local_name else url.host if url is not None else ""
        if addresses.parse(address) is None:
            continue
        if url is not None and not webhooks.is_allowed(address, settings.allow_networks):
            raise InvalidSpec(
                webhooks.refusal(url.host),
                "they allow it by `allow_networks` in the file of `yard-server --messages`",
                code="address_refused",
                at=at,
            )
    if settings.smtp is None and any(recipient.email for recipient in recipients):
        return [
            "this server sends no e-mail: its owner has to name a mail server in the file of "
            "`yard-server --messages`"
        ]
    return []
