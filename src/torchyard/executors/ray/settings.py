"""What a cluster's document says of its Ray.

Owns: the settings of the engine `ray`.
Leaves: those that every engine has to executors/cluster_settings.py, whether anything answers at
the address to engine.py.
Always: a cluster either names a head that exists, or asks for one of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from torchyard.base.documents.checks import At, Truth
from torchyard.base.documents.models import declared, rule
from torchyard.base.errors import InvalidSpec
from torchyard.executors.cluster_settings import (
    NodeSettings,
    NumbersByName,
    Setting,
    SettingsByName,
    check_path,
)

_ADDRESS = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})")


def _address(key: str, value: str, at: At) -> None:
    match = _ADDRESS.fullmatch(value)
    if match is None or not 0 < int(match[1]) < 65536:
        raise InvalidSpec(
            f"`{key}` is `{value}`, not `host:port`",
            "write the address that `ray start --head` printed, such as `10.0.0.5:6379`",
            at=at,
        )


class RaySettings(NodeSettings):
    # `head` is what the server says of a head that it has started.
    cluster_keys: ClassVar[Sequence[str]] = ("address", "head")
    server_files: ClassVar[Mapping[str, str]] = {"token_file": "the cluster's token"}

    address: str = declared(
        "", "host and port of a head that exists", Setting("10.0.0.5:6379", _address)
    )
    start: bool = declared(False, "`true`: torchyard starts the head", Truth())
    token_file: str = declared(
        "", "the file with the cluster's token", Setting("/etc/ray/token", check_path)
    )
    version: str = declared(
        "", "of the cluster's Ray; found out when it is left out", Setting("2.51.0")
    )
    resources: dict[str, int | float] = declared(
        {},
        "what one node needs beside the cores, GPUs and memory of `size`",
        NumbersByName("{CPU: 8}"),
    )
    labels: dict[str, str] = declared(
        {}, "labels that Ray's nodes must have", SettingsByName("{zone: a}")
    )

    @property
    def gpus(self) -> int | None:
        return int(self.resources["GPU"]) if "GPU" in self.resources else None

    @rule("address", "start")
    def _one_head(self) -> None:
        if self.start and self.address:
            raise InvalidSpec(
                "`address` names a Ray cluster that exists, and `start` asks for a new one",
                "leave out one of them",
                at=("address",),
            )
        if not self.start and not self.address:
            raise InvalidSpec(
                "the Ray cluster has no `address`",
                "write `torchyard: {engine: ray, address: 10.0.0.5:6379}`, or `start: true` for a "
                "head that torchyard starts",
            )


SETTINGS = RaySettings
