"""What a cluster's document says about its Slurm.

Owns: the settings as words of sbatch.
Leaves: checking the document to compute/engine_settings.py, whether a partition exists, and who may
use it, to limits.py.
Always: every value reaches sbatch as one word that begins with its option, so that none is taken
for another option or for a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.executors.slurm import sbatch_options


@dataclass(frozen=True)
class SlurmSettings:
    """Empty texts leave the choice to Slurm. `options` are further ones of sbatch, `config` is the
    path of its slurm.conf, `python` what runs the worker on the nodes.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    time_limit: str = ""
    gres: str = ""
    reservation: str = ""
    exclusive: bool = False
    options: tuple[str, ...] = ()
    node_folder: str = ""
    python: str = "python3"
    config: str = ""

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
        return words + list(self.options)


_TEXTS = (
    "partition",
    "account",
    "qos",
    "constraint",
    "time_limit",
    "gres",
    "reservation",
    "node_folder",
    "config",
)


def read(settings: Mapping[str, Any]) -> SlurmSettings:
    """
    Args:
        settings: of a cluster's document, checked.

    Raises:
        InvalidSpec: an option of sbatch is not passed on.
    """
    options = tuple(str(option) for option in settings.get("sbatch_options") or ())
    for option in options:
        sbatch_options.check(option)
    return SlurmSettings(
        **{name: str(settings.get(name) or "") for name in _TEXTS},
        exclusive=bool(settings.get("exclusive")),
        options=options,
        python=str(settings.get("python") or "python3"),
    )
