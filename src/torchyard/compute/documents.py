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
from typing import Any, ClassVar

from torchyard.base import fields
from torchyard.base.documents.checks import At, By, Holds, Text, Texts, Whole, Word
from torchyard.base.documents.faults import together
from torchyard.base.documents.models import File, declared, refused, rule
from torchyard.base.errors import InvalidSpec
from torchyard.compute import engine_settings, sizes
from torchyard.compute.sizes import Size
from torchyard.compute.types import LOCAL, Compute
from torchyard.executors.engines import ENGINES

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{1,22}[a-zA-Z0-9]")
_MOST_NODES = 100_000
_ENGINES = ", ".join(f"`{engine}`" for engine in ENGINES)


def _type(value: Any, at: At) -> str:
    if fields.text({"type": value}, "type").lower() != "amlcompute":
        message = f"compute type `{value}` is not served"
        raise InvalidSpec(message, "use `type: amlcompute`", code="not_served", at=at)
    return "amlcompute"


class ComputeFile(File):
    subject: ClassVar[str] = "the compute"

    name: str = declared("", "3 to 24 letters, digits and dashes, beginning with a letter", Text())
    type: str = declared("amlcompute", "`amlcompute`", By(_type))
    size: str = declared("", "of a node; the machine itself when left out", Text())
    tier: str = declared(
        "dedicated",
        "`dedicated` (the default) or `low_priority`",
        Word("dedicated", "low_priority"),
    )
    min_instances: int = declared(0, "nodes to keep when idle", Whole(0, _MOST_NODES))
    max_instances: int = declared(4, "nodes at the most", Whole(1, _MOST_NODES))
    idle_time_before_scale_down: int = declared(
        120, "seconds until an idle node is removed", Whole(0, 2**31 - 1)
    )
    description: str = declared("", check=Text())
    tags: dict[str, str] = declared({}, "texts and numbers", Texts())
    engine: Any = declared(None, f"what runs the nodes: `local` (the default), {_ENGINES}")
    torchyard: Any = declared(
        None, "`engine` and its settings; tags may have them, too", engine_settings.MAPPING
    )
    location: Any = declared(None, "the server's machine", support="satisfied")
    ssh_public_access_enabled: bool = declared(
        False, "`false`", Holds(False, "the machine decides who may log in"), support="satisfied"
    )
    enable_node_public_ip: bool = declared(
        False, "`false`", Holds(False, "nodes use the machine's addresses"), support="satisfied"
    )
    ssh_settings: None = refused("leave it out: nodes use the machine's accounts")
    network_settings: None = refused("leave it out: nodes use the machine's network")
    identity: None = refused("leave it out: jobs run as the server's Unix user")

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
