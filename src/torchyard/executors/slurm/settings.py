"""What a cluster's document says about its Slurm.

Owns: the settings of the engine `slurm`, and as words of sbatch.
Leaves: those that every engine has to executors/cluster_settings.py, whether a partition exists,
and who may use it, to limits.py.
Always: every value reaches sbatch as one word that begins with its option, so that none is taken
for another option or for a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from torchyard.base.documents.checks import At, Truth
from torchyard.base.documents.models import declared
from torchyard.base.errors import InvalidSpec
from torchyard.executors.cluster_settings import NodeSettings, Setting, SettingList, check_path
from torchyard.executors.slurm import sbatch_options

_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}")
_GPUS = re.compile(r"(?:^|,)gpu(?::[A-Za-z][^:,]*)?:(\d+)")


def _time(key: str, value: str, at: At) -> None:
    if not _TIME.fullmatch(value):
        raise InvalidSpec(
            f"`{key}` is `{value}` and Slurm can't read it as a time",
            "write minutes, `hours:minutes:seconds` or `days-hours`: `2-00:00:00`",
            at=at,
        )


def _option(key: str, value: str, at: At) -> None:
    sbatch_options.check(value, at)


class SlurmSettings(NodeSettings):
    """Empty texts leave the choice to Slurm."""

    runs_as_server: ClassVar[bool] = True
    cluster_keys: ClassVar[Sequence[str]] = ("config",)
    server_files: ClassVar[Mapping[str, str]] = {"config": "Slurm's configuration"}

    partition: str = declared("", "as of sbatch", Setting("gpu"))
    account: str = declared("", "as of sbatch", Setting("vision"))
    qos: str = declared("", "as of sbatch", Setting("normal"))
    constraint: str = declared("", "as of sbatch", Setting("a100"))
    time_limit: str = declared(
        "", "minutes, `hours:minutes:seconds` or `days-hours`", Setting("2-00:00:00", _time)
    )
    gres: str = declared("", "devices of one node", Setting("gpu:4"))
    exclusive: bool = declared(False, "whole nodes", Truth())
    reservation: str = declared("", "as of sbatch", Setting("course"))
    sbatch_options: tuple[str, ...] = declared(
        (), "further options, each one word", SettingList("['--mail-type=END']", _option)
    )
    config: str = declared(
        "",
        "the path of slurm.conf, where it is not the machine's",
        Setting("/etc/slurm/slurm.conf", check_path),
    )
    python: str = declared(
        "python3", "the nodes' Python; default `python3`", Setting("/usr/bin/python3")
    )

    @property
    def gpus(self) -> int | None:
        match = _GPUS.search(self.gres)
        return int(match[1]) if match else None

    @property
    def words(self) -> list[str]:
        """The options of sbatch that follow from the settings alone."""
        texts = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "time": self.time_limit,
            "gres": self.gres,
            "reservation": self.reservation,
        }
        words = [f"--{name}={value}" for name, value in texts.items() if value]
        if self.exclusive:
            words.append("--exclusive")
        return words + list(self.sbatch_options)


SETTINGS = SlurmSettings
