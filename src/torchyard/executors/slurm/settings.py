"""What a cluster's document says about its Slurm.

Owns: the settings of the engine `slurm`, and as words of sbatch.
Leaves: those that every engine has to executors/cluster_settings.py, whether a partition exists,
and who may use it, to limits.py.
Always: every value reaches sbatch as one word that begins with its option, so that none is taken
for another option or for a file.
"""

from __future__ import annotations

import re
from typing import Annotated

from torchyard.base.documents.models import At, Key, Truth
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

    partition: Annotated[str, Setting("gpu"), Key("as of sbatch")] = ""
    account: Annotated[str, Setting("vision"), Key("as of sbatch")] = ""
    qos: Annotated[str, Setting("normal"), Key("as of sbatch")] = ""
    constraint: Annotated[str, Setting("a100"), Key("as of sbatch")] = ""
    time_limit: Annotated[
        str,
        Setting("2-00:00:00", _time),
        Key("minutes, `hours:minutes:seconds` or `days-hours`"),
    ] = ""
    gres: Annotated[str, Setting("gpu:4"), Key("devices of one node")] = ""
    exclusive: Annotated[bool, Truth(), Key("whole nodes")] = False
    reservation: Annotated[str, Setting("course"), Key("as of sbatch")] = ""
    sbatch_options: Annotated[
        tuple[str, ...],
        SettingList("['--mail-type=END']", _option),
        Key("further options, each one word"),
    ] = ()
    config: Annotated[
        str,
        Setting("/etc/slurm/slurm.conf", check_path),
        Key("the path of slurm.conf, where it is not the machine's"),
    ] = ""
    python: Annotated[
        str, Setting("/usr/bin/python3"), Key("the nodes' Python; default `python3`")
    ] = "python3"

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
