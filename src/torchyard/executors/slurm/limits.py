"""What a partition allows, checked before a job is submitted.

Owns: refusing what Slurm would accept and never start.
Leaves: what Slurm itself refuses to Slurm.
Always: refuses only by what Slurm says of the partition now.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.executors.executor import EngineRefused
from torchyard.executors.slurm.commands import Slurm
from torchyard.executors.slurm.durations import UNLIMITED, seconds
from torchyard.executors.slurm.settings import SlurmSettings

_NONE = ("", "ALL", "(null)", "N/A")


def partition_of(slurm: Slurm, settings: SlurmSettings) -> dict[str, str]:
    """The partition as scontrol shows it; the default one when none is named, empty without one.

    Raises:
        EngineRefused: it does not exist, or is hidden from this user.
        EngineUnreachable: Slurm does not answer.
    """
    records = slurm.records("partition")
    # Several may be named; Slurm takes the one that starts the job first.
    names = [name for name in settings.partition.split(",") if name]
    if not names:
        return next((each for each in records if each.get("Default") == "YES"), {})
    chosen = [each for each in records if each["PartitionName"] in names]
    missing = set(names) - {each["PartitionName"] for each in chosen}
    if missing:
        listed = ", ".join(sorted(each["PartitionName"] for each in records)) or "none"
        raise EngineRefused(
            f"partition `{min(missing)}` does not exist in Slurm",
            f"this user sees these partitions: {listed}; set `torchyard.partition`",
        )
    return chosen[0] if len(chosen) == 1 else {}


def most_nodes(partition: Mapping[str, str]) -> int:
    """How many one job could ever have; 0 where that is not known."""
    total, maximum = partition.get("TotalNodes", ""), partition.get("MaxNodes", "")
    counts = [int(text) for text in (total, maximum) if text.isdigit()]
    return min(counts, default=0)


def check(partition: Mapping[str, str], settings: SlurmSettings, nodes: int) -> None:
    """
    Raises:
        EngineRefused: Slurm would let the job wait for ever.
    """
    if not partition:
        return
    name = partition["PartitionName"]
    maximum = most_nodes(partition)
    if maximum and nodes > maximum:
        raise EngineRefused(
            f"the job needs {nodes} nodes, and partition `{name}` gives a job {maximum} at "
            "the most",
            "ask for fewer nodes, or choose another partition (`sinfo -s` lists them)",
        )
    longest = seconds(partition.get("MaxTime", "")) or UNLIMITED
    if settings.time_limit and seconds(settings.time_limit) > longest:
        raise EngineRefused(
            f"time limit {settings.time_limit} is above that of partition `{name}`, "
            f"{partition['MaxTime']}",
            "set a shorter `torchyard.time_limit`; a job that is retried goes on from its last "
            "checkpoint",
        )
    _check_account(partition, settings, name)


def _check_account(partition: Mapping[str, str], settings: SlurmSettings, name: str) -> None:
    for key, text, setting in (
        ("Accounts", settings.account, "account"),
        ("Qos", settings.qos, "qos"),
    ):
        allowed, denied = partition.get(f"Allow{key}", ""), partition.get(f"Deny{key}", "")
        if not text:
            continue
        is_left_out = allowed not in _NONE and text not in allowed.split(",")
        if is_left_out or text in denied.split(","):
            only = f"; it is for {allowed}" if is_left_out else ""
            raise EngineRefused(
                f"{setting} `{text}` may not use partition `{name}`{only}",
                f"set another `torchyard.{setting}`, or another partition",
            )
