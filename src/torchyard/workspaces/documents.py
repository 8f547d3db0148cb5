"""A workspace's document, and the document of its changes.

Owns: the keys of both, their values.
Leaves: keys of Azure's resources and networks to azure_keys.py, recipients to notifications.py.
Always: a key that can't be changed is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from torchyard.base import fields
from torchyard.base.documents.models import (
    At,
    By,
    File,
    Key,
    Text,
    Texts,
    Truth,
    Whole,
    Word,
    keys,
    rule,
)
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

    name: Annotated[str, Text(), Key("3 to 33 letters, digits, `_` and `-`")] = ""
    subscription_id: Annotated[str, By(_part), Key("shown; default `local`")] = ""
    resource_group: Annotated[str, By(_part), Key("shown; default `torchyard`")] = ""
    location: Annotated[str, By(_part), Key("shown; default `local`")] = ""
    description: Annotated[str, Text(), Key()] = ""
    display_name: Annotated[str, Text(_LONGEST_NAME), Key()] = ""
    tags: Annotated[dict[str, str], Texts(), Key("texts and numbers")] = Field(default_factory=dict)

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


class ChangesFile(AzureKeys, File):
    subject: ClassVar[str] = "the document of changes"

    description: Annotated[str, Text(), Key("null: none")] = ""
    display_name: Annotated[str, Text(_LONGEST_NAME), Key("null: none")] = ""
    tags: Annotated[Any, By(_tags), Key("merged; null removes one")] = None
    retention_days: Annotated[
        int, Whole(0, _LONGEST_DAYS), Key("after which ended jobs go; 0 keeps them forever")
    ] = 0
    rehearse_on_cpu: Annotated[bool, Truth(), Key("jobs are rehearsed on the CPU")] = False
    allow_substitutes: Annotated[
        bool | None, Truth(), Key("for environments and images; null: the server decides")
    ] = None
    max_processes: Annotated[
        int, Whole(0, _MOST), Key("of a job on a node, 64 or more; 0: torchyard's limit")
    ] = 0
    disk_quota_mb: Annotated[int, Whole(0, _MOST), Key("of a job on a node; 0: none")] = 0
    network: Annotated[str, Word(*NETWORKS), Key("what jobs may connect to")] = NETWORKS[0]
    auto_compute: Annotated[bool, Truth(), Key("jobs may leave their cluster open")] = False
    notification_settings: Annotated[Any, Key("who is told of the end of jobs")] = None
    notify: Annotated[Any, Key("who is told of the end of jobs")] = None
    notify_secrets: Annotated[Any, Key("of those who are told")] = None

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
