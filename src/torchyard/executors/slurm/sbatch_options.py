"""Which options of sbatch a cluster's document may add.

Owns: the list of those that are passed on, and why others are not.
Leaves: the settings that have keys of their own to settings.py.
Always: an option is one word that is passed on as it is written; an abbreviation is refused, and so
is what would make sbatch read a file of the server's user.
"""

from __future__ import annotations

import re

from torchyard.base.errors import InvalidSpec

_OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(=(?P<value>.*))?")
_LONGEST = 1000
# What is passed on as it is written; every other name is refused, abbreviations too.
_PASSED_ON = frozenset(
    """
    acctg-freq begin bb contiguous core-spec cores-per-socket cpu-freq deadline delay-boot
    dependency distribution exclude gpu-bind gpu-freq gres-flags hint licenses mail-type mail-user
    mcs-label mem-bind mincpus network nice nodelist oversubscribe power prefer priority profile
    propagate reboot sockets-per-node spread-job switches thread-spec threads-per-core time-min tmp
    use-min-nodes wckey
    """.split()
)
_OWN_SETTING = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "time": "time_limit",
    "gres": "gres",
    "gpus": "gres",
    "gpus-per-node": "gres",
    "gpus-per-task": "gres",
    "exclusive": "exclusive",
    "reservation": "reservation",
}
_FROM_THE_SIZE = ("cpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu", "cpus-per-gpu")
_BREAKS = {
    "array": "one attempt is one job of Slurm",
    "requeue": "torchyard tries a job again by its own retry policy",
    "output": "output goes to the job's logs",
    "error": "output goes to the job's logs",
    "input": "the worker reads its start from there",
    "open-mode": "output goes to the job's logs",
    "wrap": "torchyard writes the batch script",
    "export": "a job gets its variables from its job file",
    "export-file": "a job gets its variables from its job file",
    "get-user-env": "a job gets its variables from its job file",
    "job-name": "jobs are found again by their names",
    "comment": "what a node says before its worker runs is kept there",
    "nodes": "the job file says how many nodes it needs",
    "ntasks": "each node runs one worker",
    "ntasks-per-node": "each node runs one worker",
    "signal": "torchyard chooses how a job is told of its end",
    "chdir": "each node has a folder of its own",
    "hold": "a held job never starts",
    "wait": "a submission has to return",
    "test-only": "nothing would be submitted",
    "no-kill": "a job ends when it has lost a node",
    "uid": "jobs run as the user that submits them",
    "gid": "jobs run as the user that submits them",
    "clusters": "a compute is one cluster of Slurm",
    "no-requeue": "torchyard adds it",
    "parsable": "torchyard reads what sbatch prints",
}


def check(option: str, at: tuple[str | int, ...] = ()) -> None:
    """
    Raises:
        InvalidSpec: it can't be passed on.
    """
    match = _OPTION.fullmatch(option)
    if match is None or len(option) > _LONGEST or not option.isprintable():
        raise InvalidSpec(
            f"`{option[:80]}` in `sbatch_options` is not an option written as one word",
            "write each as `--name` or `--name=value`",
            at=at,
        )
    name = match["name"]
    if name in _OWN_SETTING:
        raise InvalidSpec(
            f"`--{name}` can't be among the `sbatch_options`",
            f"use the setting `{_OWN_SETTING[name]}`",
            at=at,
        )
    if name in _FROM_THE_SIZE:
        raise InvalidSpec(
            f"`--{name}` can't be among the `sbatch_options`",
            "give the cluster a `size`: Slurm is asked for its cores and memory",
            at=at,
        )
    if name in _BREAKS:
        raise InvalidSpec(
            f"`--{name}` can't be among the `sbatch_options`: {_BREAKS[name]}",
            "leave it out",
            at=at,
        )
    if name not in _PASSED_ON:
        raise InvalidSpec(
            f"`--{name}` is not among the options of sbatch that are passed on",
            f"these are: {', '.join(sorted(_PASSED_ON))}",
            at=at,
        )
