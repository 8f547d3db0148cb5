"""A cluster's YAML document.

Owns: the keys, their values, the messages when one is wrong.
Leaves: sizes to sizes.py, engines and their settings to engine_settings.py, storing the cluster to
actions.py.
Always: keys and defaults are those of Azure ML's amlCompute, `torchyard` and `engine` are ours; a
key that has no effect here is refused by name, unless its value holds here anyway.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

from torchyard.base import fields
from torchyard.base.documents.models import (
    At,
    By,
    File,
    Holds,
    Key,
    Refused,
    Text,
    Texts,
    Whole,
    Word,
    rule,
    together,
)
from torchyard.base.errors import InvalidSpec
from torchyard.compute import engine_settings, sizes
from torchyard.compute.sizes import Size
from torchyard.compute.types import LOCAL, Compute

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{1,22}[a-zA-Z0-9]")
_MOST_NODES = 100_000


def _type(value: Any, at: At) -> str:
    if fields.text({"type": value}, "type").lower() != "amlcompute":
        message = f"compute type `{value}` is not served"
        raise InvalidSpec(message, "use `type: amlcompute`", code="not_served", at=at)
    return "amlcompute"


class ComputeFile(File):
    subject: ClassVar[str] = "the compute"

    name: Annotated[
        str, Text(), Key("3 to 24 letters, digits and dashes, beginning with a letter")
    ] = ""
    type: Annotated[str, By(_type), Key("`amlcompute`")] = "amlcompute"
    size: Annotated[str, Text(), Key("of a node; the machine itself when left out")] = ""
    tier: Annotated[
        str,
        Word("dedicated", "low_priority"),
        Key("`dedicated` (the default) or `low_priority`"),
    ] = "dedicated"
    min_instances: Annotated[int, Whole(0, _MOST_NODES), Key("nodes to keep when idle")] = 0
    max_instances: Annotated[int, Whole(1, _MOST_NODES), Key("nodes at the most")] = 4
    idle_time_before_scale_down: Annotated[
        int, Whole(0, 2**31 - 1), Key("seconds until an idle node is removed")
    ] = 120
    description: Annotated[str, Text(), Key()] = ""
    tags: Annotated[dict[str, str], Texts(), Key("texts and numbers")] = Field(default_factory=dict)
    engine: Annotated[Any, Key("what runs the nodes: `local` (the default), `ray`, `slurm`")] = None
    torchyard: Annotated[
        Any, engine_settings.MAPPING, Key("`engine` and its settings; tags may have them, too")
    ] = None
    location: Annotated[Any, Key("the server's machine", "satisfied")] = None
    ssh_public_access_enabled: Annotated[
        bool, Holds(False, "the machine decides who may log in"), Key("`false`", "satisfied")
    ] = False
    enable_node_public_ip: Annotated[
        bool, Holds(False, "nodes use the machine's addresses"), Key("`false`", "satisfied")
    ] = False
    ssh_settings: Annotated[None, Refused("leave it out: nodes use the machine's accounts")] = None
    network_settings: Annotated[None, Refused("leave it out: nodes use the machine's network")] = (
        None
    )
    identity: Annotated[None, Refused("leave it out: jobs run as the server's Unix user")] = None

    @rule("name")
    def _name(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSpec(
                f"`{self.name}` is not a valid compute name"
                if self.name
                else "the compute has no `name`",
                "use 3 to 24 letters, digits and dashes, starting with a letter",
                at=("name",),
            )

    @rule("min_instances", "max_instances")
    def _order(self) -> None:
        if self.min_instances > self.max_instances:
            has_maximum = "max_instances" in self.model_fields_set
            raise InvalidSpec(
                f"`max_instances` is {self.max_instances} and `min_instances` is "
                f"{self.min_instances}",
                "the maximum must not be below the minimum",
                at=("max_instances",) if has_maximum else ("min_instances",),
            )


def read(
    document: Mapping[str, Any],
    workspace: str,
    now: datetime,
    available_sizes: Mapping[str, Size],
    engines: Collection[str] = (LOCAL,),
) -> Compute:
    """
    Args:
        available_sizes: as `sizes.all_sizes` returns them.
        engines: those that this server runs.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    # Of another type's keys nothing needs to be said: the type is what is not served.
    if isinstance(document.get("type"), str):
        _type(document["type"], ("type",))
    file, (engine, settings), size = together(
        lambda: ComputeFile.read(document),
        lambda: engine_settings.read(document, engines),
        lambda: _size(document.get("size"), available_sizes),
        body=document,
    )
    return Compute(
        name=file.name,
        workspace=workspace,
        created_at=now,
        size=file.size.strip(),
        tier=file.tier,
        min_instances=file.min_instances,
        max_instances=file.max_instances,
        idle_time_before_scale_down=file.idle_time_before_scale_down,
        description=file.description,
        tags=engine_settings.without(file.tags),
        cores=size.cores if size else None,
        memory_bytes=size.memory_bytes if size else None,
        gpus=size.gpus if size else settings.gpus,
        gpu_kind=size.gpu_kind if size else "",
        engine=engine,
        engine_settings=settings.written or None,
    )


def _size(name: Any, available_sizes: Mapping[str, Size]) -> Size | None:
    return sizes.find(name, available_sizes) if name and isinstance(name, str) else None
