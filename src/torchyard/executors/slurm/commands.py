"""Run Slurm's programs.

Owns: their options, time limits and environment, reading what they print, what their errors mean.
Leaves: how often they run to polling.py, what a state means to job_states.py.
Always: no shell; nothing of the server's own environment reaches Slurm but the path of its
programs and configuration; every text of other people's jobs is data.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from torchyard.executors.executor import EngineRefused, EngineUnreachable

TIMEOUT_S = 10.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"
# By a part of what Slurm's programs print in lower case: what it means for a person.
_UNREACHABLE = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "zero bytes were transmitted",
    "temporarily unable",
    "munge",
    "authentication",
    "could not establish a configuration source",
    "invalid node name specified",
    "no route to host",
    "resource temporarily unavailable",
    "i/o error",
)
# Too many jobs are there already: the same submission is accepted later.
_LATER = ("maxsubmit", "job submit limit", "maxjobs", "too many jobs", "maximum number of jobs")
_HINTS = (
    ("invalid partition", "list them with `sinfo -s`; see `torchyard.partition`"),
    ("invalid account", "see `sacctmgr show assoc user=$USER`; set `torchyard.account`"),
    ("invalid qos", "see `sacctmgr show assoc user=$USER format=qos`; set `torchyard.qos`"),
    ("invalid feature", "list features with `sinfo -o '%N %f'`; see `torchyard.constraint`"),
    ("reservation", "list them with `scontrol show reservation`; see `torchyard.reservation`"),
    ("gres", "list them with `sinfo -o '%N %G'`; see `torchyard.gres`"),
    ("time limit", "list limits with `sinfo -o '%P %l'`; see `torchyard.time_limit`"),
    ("requested node configuration", "list nodes with `sinfo -N -o '%N %P %c %m %G %f'`"),
    ("more processors", "list nodes with `sinfo -N -o '%N %P %c %m %G %f'`"),
    ("node count", "list partitions with `sinfo -s`"),
    ("access", "ask the cluster's administrators for access, or choose another partition"),
    ("permi", "ask the cluster's administrators for access, or choose another partition"),
)
# Names of squeue's columns, and their widths: it cuts what is longer.
_COLUMNS = {
    "JobID": 24,
    "Name": 160,
    "State": 24,
    "Reason": 160,
    "PreemptTime": 24,
    "StartTime": 24,
    "EndTime": 24,
    "TimeLimit": 24,
    "exit_code": 16,
    "NodeList": 256,
    "Comment": 1024,
}


@dataclass(frozen=True)
class JobRow:
    """A job as Slurm sees it; times are texts, empty where Slurm has none."""

    id: int
    name: str
    state: str
    reason: str = ""
    preempted_at: str = ""
    starts_at: str = ""
    ended_at: str = ""
    time_limit: str = ""
    exit_code: int = 0
    nodes: str = ""
    comment: str = ""


class Slurm:
    """The programs of one cluster.

    Args:
        environ: the server's own; only what these programs need is taken from it.
        config: the path of slurm.conf; empty for the machine's.
    """

    def __init__(self, environ: Mapping[str, str], config: str = "") -> None:
        user = pwd.getpwuid(os.geteuid())
        self._user = user.pw_name
        self._variables = {
            "PATH": os.pathsep.join(filter(None, [environ.get("PATH", ""), _PATH])),
            "HOME": user.pw_dir,
            "USER": user.pw_name,
            "LOGNAME": user.pw_name,
            "LC_ALL": "C.UTF-8",
            "SLURM_TIME_FORMAT": "standard",
            "TZ": "UTC",
        }
        config = config or environ.get("SLURM_CONF", "")
        if config:
            self._variables["SLURM_CONF"] = config

    def submit(self, words: Sequence[str], script: str, inherited: Sequence[int] = ()) -> int:
        """Submit a batch script; its job id.

        Args:
            inherited: descriptors that sbatch keeps open until it ends.

        Raises:
            EngineUnreachable: whether it was submitted is not known.
            EngineRefused: Slurm refuses it.
        """
        printed = self.run(
            ["sbatch", "--parsable", *words], script, inherited=inherited, limit_s=3 * TIMEOUT_S
        )
        last = printed.strip().splitlines()[-1:] or [""]
        number = last[0].partition(";")[0]
        if not number.isdigit():
            raise EngineUnreachable(f"sbatch printed no job id but `{printed[:200]}`")
        return int(number)

    def would_accept(self, words: Sequence[str]) -> None:
        """
        Raises:
            EngineRefused: as `submit` would.
        """
        self.run(["sbatch", "--test-only", *words], "#!/bin/sh\n")

    def jobs(self, ids: Sequence[int]) -> dict[int, JobRow]:
        """Those of the jobs that Slurm still knows, also when they have ended."""
        if not ids:
            return {}
        # One that is not known is an error when it is the only one, and left out among several.
        listed = ",".join(map(str, [*ids, *ids[:1]]))
        try:
            rows = self._squeue(f"--jobs={listed}")
        except EngineRefused as refusal:
            if "invalid job id" in refusal.message.lower():
                return {}
            raise
        return {row.id: row for row in rows}

    def jobs_named(self, name: str) -> list[JobRow]:
        """This user's jobs of that name, in the order of their submission."""
        rows = self._squeue(f"--name={name}", f"--user={self._user}")
        return sorted((row for row in rows if row.name == name), key=lambda row: row.id)

    def past_job(self, id: int) -> JobRow | None:
        """What the accounting says of a job; None when it does not know it, or does not exist."""
        try:
            printed = self.run(
                ["sacct", "-X", "-n", "-P", f"--jobs={id}", "-o", "JobIDRaw,State,ExitCode,JobName"]
            )
        except EngineRefused:
            return None  # a cluster may have none
        for line in printed.splitlines():
            fields = line.split("|", 3)
            if len(fields) == 4 and fields[0] == str(id):
                # `CANCELLED by 1000`
                state = fields[1].split(" ")[0]
                return JobRow(id, fields[3], state, exit_code=_number(fields[2].split(":")[0]))
        return None

    def past_jobs_named(self, name: str) -> list[JobRow]:
        """Those of the last 30 days that the accounting knows."""
        words = [
            "-X",
            "-n",
            "-P",
            f"--name={name}",
            "--starttime=now-30days",
            f"--user={self._user}",
        ]
        try:
            printed = self.run(["sacct", *words, "-o", "JobIDRaw,State"])
        except EngineRefused:
            return []
        fields = [line.split("|") for line in printed.splitlines()]
        rows = [
            JobRow(int(each[0]), name, each[1].split(" ")[0])
            for each in fields
            if each[0].isdigit()
        ]
        return sorted(rows, key=lambda row: row.id)

    def cancel(self, id: int, name: str, signal: str = "") -> None:
        """End a job, or send a signal to its workers; nothing when it has ended.

        Args:
            name: of the job: a controller that was killed may use its id again for another.
        """
        words = ["--signal=" + signal] if signal else []
        try:
            # With `--quiet` it would not say that the job has ended.
            self.run(["scancel", f"--name={name}", *words, str(id)])
        except EngineRefused as refusal:
            if "invalid job id" not in refusal.message.lower() and "already" not in refusal.message:
                raise

    def records(self, kind: str, name: str = "") -> list[dict[str, str]]:
        """What scontrol shows: `node` or `partition`, of one or all.

        Raises:
            EngineRefused: it does not exist.
        """
        words = [name] if name else []
        printed = self.run(["scontrol", "--oneliner", "show", kind, *words])
        return [record for line in printed.splitlines() if (record := fields_of(line))]

    def step_nodes(self, id: int) -> tuple[str, ...] | None:
        """Where the job's workers have processes, as lists of nodes; None when nobody can say."""
        try:
            printed = self.run(["sstat", "--allsteps", "--pidformat", "-n", "-P", f"--jobs={id}"])
        except EngineRefused:
            return None
        rows = [line.split("|") for line in printed.splitlines()]
        # Without a line of the batch script, or of a worker elsewhere when the script's node was
        # restarted, it does not know the job's processes.
        if not any(row[0] in (f"{id}.batch", f"{id}.0") for row in rows):
            return None
        return tuple(row[1] for row in rows if row[0] == f"{id}.0" and len(row) > 1)

    def running(self, partition: str) -> list[tuple[str, str, str, str]]:
        """Job id, user, node list and name of what runs in a partition."""
        words = [f"--partition={partition}"] if partition else []
        printed = self.run(["squeue", "-h", "-t", "R,CG", "-o", "%A|%u|%N|%j", *words])
        rows = [line.split("|", 3) for line in printed.splitlines()]
        return [(row[0], row[1], row[2], row[3]) for row in rows if len(row) == 4]

    def controller_age_s(self) -> float | None:
        """How long ago its controller was started, by its own clock; None when it can't be read."""
        printed = self.run(["scontrol", "show", "config"])
        now = re.search(r"^Configuration data as of (\S+)", printed, re.MULTILINE)
        started = re.search(r"^BOOT_TIME\s*=\s*(\S+)", printed, re.MULTILINE)
        try:
            moments = [datetime.fromisoformat(match[1]) for match in (now, started) if match]
        except ValueError:
            return None
        return (moments[0] - moments[1]).total_seconds() if len(moments) == 2 else None

    def version(self) -> str:
        """Such as 22.05.8."""
        return self.run(["sinfo", "--version"]).strip().rpartition(" ")[2]

    def run(
        self,
        command: Sequence[str],
        text: str = "",
        inherited: Sequence[int] = (),
        limit_s: float = TIMEOUT_S,
    ) -> str:
        """What a program prints.

        Raises:
            EngineUnreachable: it, or the controller, does not answer.
            EngineRefused: Slurm refuses the request.
        """
        program = command[0]
        try:
            done = subprocess.run(
                command, input=text, env=self._variables, cwd="/", timeout=limit_s,
                capture_output=True, encoding="utf-8", errors="replace", pass_fds=inherited,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise EngineUnreachable(
                f"`{program}` is not on the server's machine",
                "run the server where jobs are submitted to Slurm, such as a login node",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise EngineUnreachable(
                f"`{program}` did not answer in {limit_s:g} s", "see `scontrol ping`"
            ) from error
        if done.returncode < 0:
            raise EngineUnreachable(
                f"`{program}` was ended by signal {-done.returncode}", "it is run again"
            )
        if done.returncode:
            raise _error(program, done.stderr or done.stdout)
        return done.stdout

    def _squeue(self, *words: str) -> list[JobRow]:
        columns = ",".join(f"{name}:{width}" for name, width in _COLUMNS.items())
        printed = self.run(["squeue", "-h", "--states=all", "-O", columns, *words])
        rows = []
        for line in printed.splitlines():
            fields = _columns(line)
            if fields["JobID"].isdigit():
                rows.append(_row(fields))
        return rows


def fields_of(line: str) -> dict[str, str]:
    """`Key=value` pairs of a line of scontrol; a value may have spaces, as reasons do."""
    fields: dict[str, str] = {}
    key = ""
    for word in line.split(" "):
        name, equals, value = word.partition("=")
        if equals and name[:1].isupper() and name.replace("/", "").replace(":", "").isalnum():
            key = name
            fields.setdefault(key, value)
        elif key and word:
            fields[key] += f" {word}"
    return fields


def _columns(line: str) -> dict[str, str]:
    fields, start = {}, 0
    for name, width in _COLUMNS.items():
        value = line[start : start + width].strip()
        fields[name] = "" if value in ("N/A", "(null)", "None") else value
        start += width
    return fields


def _row(fields: Mapping[str, str]) -> JobRow:
    return JobRow(
        id=int(fields["JobID"]),
        name=fields["Name"],
        state=fields["State"],
        reason=fields["Reason"],
        preempted_at=fields["PreemptTime"],
        starts_at=fields["StartTime"],
        ended_at=fields["EndTime"],
        time_limit=fields["TimeLimit"],
        exit_code=_number(fields["exit_code"]) >> 8,  # as wait() has it
        nodes=fields["NodeList"],
        comment=fields["Comment"],
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _error(program: str, printed: str) -> EngineUnreachable | EngineRefused:
    lines = [line.partition("error: ")[2] or line for line in printed.strip().splitlines()]
    text = "; ".join(line.strip() for line in lines if line.strip())[:500]
    text = text.replace("allocation failure: ", "").replace("Batch job submission failed: ", "")
    lower = text.lower()
    message = f"Slurm refuses: {text}" if text else f"`{program}` failed"
    if any(word in lower for word in _UNREACHABLE):
        return EngineUnreachable(f"Slurm does not answer: {text}", "see `scontrol ping`")
    if any(word in lower for word in _LATER):
        return EngineUnreachable(message, "it is tried again once other jobs have ended")
    hint = next((hint for word, hint in _HINTS if word in lower), f"see `man {program}`")
    return EngineRefused(message, hint)
