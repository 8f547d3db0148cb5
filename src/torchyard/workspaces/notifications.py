"""Who is told of the end of every job of a workspace.

Owns: the three keys of a workspace that say so, as they are stored, changed and shown.
Leaves: what a recipient may be to jobs/spec/notification_settings.py, sending to jobs/messages/.
Always: the value of a secret is never shown; a secret that no webhook names is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchyard.base import fields
from torchyard.base.errors import InvalidSpec
from torchyard.shared.secret_values import HIDDEN, LEFT_OUT

SETTINGS, NOTIFY, SECRETS = "notification_settings", "notify", "notify_secrets"
KEYS = (SETTINGS, NOTIFY, SECRETS)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_LONGEST_SECRET = 4096


def merged(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """What a workspace has after a change.

    Recipients are replaced, secrets are added to those there are; null removes either. A secret
    whose value is `HIDDEN`, as an answer shows it, stays what it is.

    Raises:
        InvalidSpec: a secret is not valid, or no webhook names it.
    """
    after = {key: stored[key] for key in (SETTINGS, NOTIFY) if key in stored}
    for key in (SETTINGS, NOTIFY):
        if key in changes:
            after.pop(key, None)
            if changes[key]:
                after[key] = changes[key]
    secrets: dict[str, str] = dict(stored.get(SECRETS) or {})
    written = fields.mapping(changes.get(SECRETS) or {}, f"`{SECRETS}`")
    names = set(_variable_names(after.get(NOTIFY)))
    for name, value in written.items():
        if value is None:
            secrets.pop(name, None)
        elif value != HIDDEN or name not in secrets:
            secrets[name] = _secret(name, value, names)
    after |= {SECRETS: {name: value for name, value in secrets.items() if name in names}}
    return {key: value for key, value in after.items() if value}


def without_secrets(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The three keys as they are read without the home's key."""
    left_out = {SECRETS: dict.fromkeys(stored[SECRETS], LEFT_OUT)} if stored.get(SECRETS) else {}
    return {**stored, **left_out}


def to_json(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The three keys, with `HIDDEN` for the value of each secret."""
    return {
        SETTINGS: stored.get(SETTINGS) or {},
        NOTIFY: stored.get(NOTIFY) or [],
        SECRETS: dict.fromkeys(stored.get(SECRETS) or {}, HIDDEN),
    }


def _secret(name: str, value: Any, names: set[str]) -> str:
    at = [SECRETS, name]
    if not _NAME.match(name):
        raise InvalidSpec(
            f"`{name[:80]}` is not a valid name of a secret",
            "use letters, digits and `_`, as in `HOOK_SECRET`",
            at=at,
        )
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_SECRET:
        raise InvalidSpec(
            f"the value of `{name}` must be a text of 1 to {_LONGEST_SECRET} characters",
            "null removes a secret",
            at=at,
        )
    if value == HIDDEN:
        raise InvalidSpec(
            f"the value of `{name}` is `{HIDDEN}`, which stands for a secret in answers",
            "give its value again",
            at=at,
        )
    if name not in names:
        raise InvalidSpec(
            f"no webhook of `{NOTIFY}` names the secret `{name}`",
            f"name it there: `url_env: {name}` or `secret_env: {name}`",
            at=at,
        )
    return value


def _variable_names(webhooks: Any) -> Iterator[str]:
    for webhook in webhooks if isinstance(webhooks, list) else ():
        if isinstance(webhook, Mapping):
            for key in ("url_env", "secret_env"):
                if isinstance(webhook.get(key), str):
                    yield webhook[key]
