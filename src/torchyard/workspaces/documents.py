"""A workspace's document, and the document of its changes.

Owns: the keys of both, their values.
Leaves: keys of Azure's resources and networks to azure_keys.py, recipients to notifications.py.
Always: a key that can't be changed is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torchyard.base import fields
from torchyard.base.documents.checks import At, By, Text, Texts, Whole, Word
from torchyard.base.documents.models import File, declared, keys, rule
from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.workspaces import notifications
from torchyard.workspaces.azure_keys import AzureKeys
from torchyard.workspaces.types import NETWORKS

_NAME = re.compile(r"[a-zA-Z0-9][\w-]{2,32}", re.ASCII)
_PART = re.compile(r"[\w.()-]{1,64}", re.ASCII)
_LONGEST_NAME = 256
_LEAST_PROCESSES, _MOST = 64, 1 << 30
_LONGEST_DAYS = 36_500
# They have a meaning of their own: none.
_NULLABLE = ("description", "display_name", "allow_substitutes")


def _part(value: Any, at: At) -> str:
    key = str(at[-1])
    part = fields.text({key: value}, key, at[:-1])
    if part and not _PART.fullmatch(part):
        raise InvalidSpec(
            f"`{part[:80]}` is not a valid `{key}`",
            "use up to 64 letters, digits, `_`, `-`, `.`, `(` and `)`",
            at=at,
        )
    return part


def _tags(value: Any, at: At) -> Any:
    fields.merged({}, {"tags": value}, "tags")
    return value


class WorkspaceFile(AzureKeys, File):
    subject: ClassVar[str] = "the workspace"

    name: str = declared("", "3 to 33 letters, digits, `_` and `-`", Text())
    subscription_id: str = declared("", "shown; default `local`", By(_part))
    resource_group: str = declared("", "shown; default `torchyard`", By(_part))
    location: str = declared("", "shown; default `local`", By(_part))
    description: str = declared("", check=Text())
    display_name: str = declared("", check=Text(_LONGEST_NAME))
    tags: dict[str, str] = declared({}, "texts and numbers", Texts())

    @rule("name")
    def _name(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSpec(
                f"`{self.name[:80]}` is not a valid workspace name"
                if self.name
                else "the workspace has no `name`",
                "use 3 to 33 letters, digits, `_` and `-`, starting with a letter or digit",
                at=["name"],
            )


def _flag(value: Any, at: At) -> bool:
    if not isinstance(value, bool):
        raise InvalidSpec(
            f"`{at[-1]}` must be a boolean, not `{str(value)[:50]}`", "use true or false", at=at
        )
    return value


class ChangesFile(AzureKeys, File):
    subject: ClassVar[str] = "the document of changes"

    description: str = declared("", "null: none", Text())
    display_name: str = declared("", "null: none", Text(_LONGEST_NAME))
    tags: Any = declared(None, "merged; null removes one", By(_tags))
    retention_days: int = declared(
        0, "after which ended jobs go; 0 keeps them forever", Whole(0, _LONGEST_DAYS)
    )
    rehearse_on_cpu: bool = declared(False, "jobs are rehearsed on the CPU", By(_flag))
    allow_substitutes: bool | None = declared(
        None, "for environments and images; null: the server decides", By(_flag)
    )
    max_processes: int = declared(
        0, "of a job on a node, 64 or more; 0: torchyard's limit", Whole(0, _MOST)
    )
    disk_quota_mb: int = declared(0, "of a job on a node; 0: none", Whole(0, _MOST))
    network: str = declared(NETWORKS[0], "what jobs may connect to", Word(*NETWORKS))
    auto_compute: bool = declared(False, "jobs may leave their cluster open", By(_flag))
    notification_settings: Any = declared(None, "who is told of the end of jobs")
    notify: Any = declared(None, "who is told of the end of jobs")
    notify_secrets: Any = declared(None, "of those who are told")

    @rule("max_processes")
    def _processes(self) -> None:
        if 0 < self.max_processes < _LEAST_PROCESSES:
            raise InvalidSpec(
                f"`max_processes` must be a whole number from {_LEAST_PROCESSES} to {_MOST}, not "
                f"`{self.max_processes}`",
                "0 leaves it to torchyard",
                at=["max_processes"],
            )

    @classmethod
    def _further_faults(cls, body: Any, at: At) -> list[InvalidSpec]:
        nulls = [key for key in CHANGES if key in body and body[key] is None]
        return super()._further_faults(body, at) + [
            InvalidSpec(f"`{key}` can't be null", "leave it out, or give a value", at=(*at, key))
            for key in nulls
            if key not in (*_NULLABLE, *notifications.KEYS, "tags")
        ]

    @classmethod
    def unknown_key(cls, key: str, at: At, body: Mapping[str, Any]) -> InvalidSpec:
        return InvalidSpec(
            f"`{key}` of a workspace can't be changed",
            did_you_mean(key, CHANGES, f"you can change: {', '.join(CHANGES)}"),
            at=(*at, key),
        )

    def settings(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Those that `changes` has, beside the recipients; a null that means nothing is none."""
        return {
            key: getattr(self, key)
            for key in CHANGES
            if key not in notifications.KEYS
            and (changes.get(key) is not None or (key in changes and key in _NULLABLE))
        }


CHANGES = tuple(key for key in keys(ChangesFile) if key not in (*keys(AzureKeys), *keys(File)))
"""Of torchyard's own keys those that can be changed."""
