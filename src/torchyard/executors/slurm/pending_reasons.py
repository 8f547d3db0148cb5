"""Why a job waits in Slurm, in plain words.

Owns: the sentence for each of Slurm's reasons, and which of them never pass.
Leaves: why a job waits before it is submitted to jobs/admission/waiting_reasons.py.
"""

from __future__ import annotations

_REASONS = {
    "": "Slurm has not considered it yet",
    "None": "Slurm has not considered it yet",
    "Priority": "other jobs have a higher priority",
    "Resources": "its nodes are in use",
    "Dependency": "it depends on jobs that have not ended",
    "BeginTime": "its begin time has not come",
    "Cleaning": "its previous run is being cleaned up",
    "Licenses": "its licenses are in use",
    "Prolog": "the nodes are being prepared",
    "Reservation": "its reservation has not begun",
    "ReqNodeNotAvail": "nodes that it names are not available",
    "PartitionDown": "the partition accepts jobs but does not start any",
    "PartitionInactive": "the partition is inactive",
    "NodeDown": "a node that it needs is down",
    "JobHeldUser": "it is held; release it with `scontrol release`",
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it is held, because it was requeued too often",
    "JobArrayTaskLimit": "the limit of tasks of its array is reached",
    "MaxPowerMilliwatts": "the limit of power is reached",
    "SystemFailure": "Slurm has an error of its own",
    "launch failed requeued held": "a node could not launch it, and it is held",
    "NonZeroExitCode": "its program failed",
    "FrontEndDown": "no front end is up",
    "FedJobLock": "another cluster of the federation looks at it",
    "BurstBufferResources": "the burst buffer is full",
    "BurstBufferStageIn": "its burst buffer is being filled",
    "PartitionNodeLimit": "it needs nodes of the partition that are down, or more than it gives",
}
_HOPELESS = {
    "PartitionTimeLimit": "its time limit is above the partition's",
    "AccountNotAllowed": "its account may not use the partition",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "QOSNotAllowed": "its QOS may not be used in the partition",
    "BadConstraints": "no node meets its constraint",
    "DependencyNeverSatisfied": "it depends on jobs that ended otherwise",
    "ReservationDeleted": "its reservation was deleted",
    "DeadLine": "its deadline has passed",
}
# Beginnings of Slurm's longer texts, which stand in place of these reasons.
_TEXTS = (
    ("Job's account not permitted", "AccountNotAllowed"),
    ("Job's QOS not permitted", "QOSNotAllowed"),
    ("Nodes required for job are DOWN", "NodeDown"),
    ("ReqNodeNotAvail", "ReqNodeNotAvail"),
)
_WHOSE = (
    ("QOSGrp", "all jobs of its QOS together"),
    ("QOSMax", "its QOS"),
    ("QOSMin", "its QOS"),
    ("QOS", "its QOS"),
    ("AssocGrp", "all jobs of its account together"),
    ("AssocMax", "its account"),
    ("Assoc", "its account"),
)
_OF = (
    ("Submit", "submitted jobs"),
    ("JobsPer", "running jobs"),
    ("Jobs", "running jobs"),
    ("Job", "running jobs"),
    ("GRES", "GPUs and other devices"),
    ("CpuMinutes", "core minutes"),
    ("CPUMinutes", "core minutes"),
    ("CPURun", "core minutes"),
    ("Cpu", "cores"),
    ("CPU", "cores"),
    ("Mem", "memory"),
    ("Node", "nodes"),
    ("Wall", "time"),
    ("Billing", "billing units"),
    ("BB", "the burst buffer"),
)
# A limit of one job: it stays exceeded however long it waits.
_PER_JOB = ("PerJob", "PerNode", "MaxWallDurationPerJobLimit", "MinCpuNotSatisfied")


def text(reason: str) -> str:
    """Why it waits, such as `its nodes are in use`; Slurm's own word for what we don't know."""
    key = _key(reason)
    if key in _HOPELESS:
        return _HOPELESS[key]
    if key in _REASONS:
        return _REASONS[key]
    for beginning, whose in _WHOSE:
        if key.startswith(beginning):
            limited = key[len(beginning) :]
            of = next((subject for word, subject in _OF if word in limited), "")
            return f"{whose} reached a limit{f' of {of}' if of else ''} ({key})"
    return f"Slurm says {reason[:200]}"


def is_hopeless(reason: str) -> bool:
    """Whether it would wait for ever, unless somebody changes the job or the cluster's rules."""
    key = _key(reason)
    return key in _HOPELESS or any(word in key for word in _PER_JOB)


def _key(reason: str) -> str:
    reason = reason.strip("() ")
    for beginning, key in _TEXTS:
        if reason.startswith(beginning):
            return key
    return reason if reason in _REASONS else reason.split(",")[0].strip()
