"""What validation jobs came to.

Owns: reading what ranks wrote, the report, how a workload's results of several ranks become one,
what the environment answered of itself.
Leaves: running workloads to workloads/main.py, jobs and their files to jobs/.
Always: a workload that left no result failed; one that any rank failed failed; a skipped one says
why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.base.clock import to_text
from torchyard.base.errors import NotFound
from torchyard.environments import version_labels
from torchyard.environments.version_labels import Answer, Label
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import FileServices
from torchyard.releases.records.types import FAILED, PASSED, SKIPPED
from torchyard.releases.workload_list import Workload

_FOLDER = "outputs/validation"
_MOST_BYTES = 4 << 20
_LONGEST_REASON = 1000


@dataclass(frozen=True)
class JobResults:
    """The result of each workload of an ended job; the hardware and the answer of each rank."""

    workloads: Sequence[Mapping[str, Any]]
    hardware: Sequence[Mapping[str, Any]]
    answers: Sequence[Answer]


def results_of(services: FileServices, job: Job, workloads: Sequence[Workload]) -> JobResults:
    """What the ranks of an ended job wrote."""
    ranks = _read(services, job)
    hardware = [line for lines in ranks for line in lines if "hardware" in line]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for line in (line for lines in ranks for line in lines if "name" in line):
        by_name.setdefault(line["name"], []).append(line)
    expected = max((int(line.get("ranks", 1)) for line in hardware), default=1)
    results = [
        _result(job, workload, by_name.get(workload.name, []), expected) for workload in workloads
    ]
    answers = [line["answer"] for lines in ranks for line in lines if "answer" in line]
    return JobResults(
        results,
        [{**line["hardware"], "rank": line["rank"]} for line in hardware],
        [version_labels.read_answer(answer) for answer in answers],
    )


def report(
    environment: str,
    jobs: Sequence[Job],
    by_job: Sequence[JobResults],
    label: Label,
    content: Mapping[str, str],
) -> dict[str, Any]:
    """The report of a validation.

    Args:
        by_job: what came of each job.
        label: what the environment is said to hold.
        content: `hash` of the environment, `lock_sha256`.
    """
    results = [result for of_job in by_job for result in of_job.workloads]
    hardware = [row for of_job in by_job for row in of_job.hardware]
    answers = [answer for of_job in by_job for answer in of_job.answers]
    counts = {
        status: sum(result["status"] == status for result in results)
        for status in (PASSED, FAILED, SKIPPED)
    }
    ended = [job.ended_at for job in jobs if job.ended_at is not None]
    return {
        "environment": environment,
        **content,
        **counts,
        "jobs": [job.name for job in jobs],
        "hardware": [dict(row) for row in _distinct(hardware)],
        "label": _label(label, answers),
        "ended_at": to_text(max(ended)) if ended else None,
        "seconds": round(sum(job.duration_s or 0.0 for job in jobs), 1),
        "workloads": [dict(result) for result in results],
    }


def _label(label: Label, answers: Sequence[Answer]) -> dict[str, Any]:
    """What the first rank answered, and how any rank's answer differs from the label."""
    if not answers:
        return {"differences": ["no rank answered what the environment holds"]}
    lines = (line for answer in answers for line in version_labels.differences(label, answer))
    first = answers[0]
    return {
        **{key: getattr(first, key) or "" for key in ("python", "torch", "cuda", "machine")},
        "packages": dict(first.packages),
        "variables": dict(first.variables or {}),
        "differences": list(dict.fromkeys(lines)),
    }


def failures(report: Mapping[str, Any]) -> list[str]:
    """In words, each difference from the label, and each workload that failed."""
    differences = report.get("label", {}).get("differences", ())
    return [f"wrong label: {difference}" for difference in differences] + [
        f"{result['name']}: {result['reason']}"
        for result in report.get("workloads", ())
        if result["status"] == FAILED
    ]


def lost(report: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """In words, each workload that passed before and is skipped now."""
    passed = {
        result["name"] for result in before.get("workloads", ()) if result["status"] == PASSED
    }
    return [
        f"{result['name']} passed with {before.get('environment', 'the version before')} and is "
        f"skipped now: {result['reason']}"
        for result in report.get("workloads", ())
        if result["status"] == SKIPPED and result["name"] in passed
    ]


def _read(services: FileServices, job: Job) -> list[list[dict[str, Any]]]:
    """The lines of each rank's file; of one that a kill tore, those that are whole."""
    ranks = []
    for artifact in artifacts.list_of(services, job, _FOLDER):
        if not artifact.path.startswith("rank-") or artifact.size_bytes > _MOST_BYTES:
            continue
        try:
            file = artifacts.file(services, job, f"{_FOLDER}/{artifact.path}")
            text = file.read_text(encoding="utf-8", errors="replace")
        except (NotFound, FileNotFoundError):
            continue
        ranks.append([line for line in map(_line, text.splitlines()) if line])
    return ranks


def _line(text: str) -> dict[str, Any]:
    """An object with the keys of a result, the hardware or an answer; else an empty one."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(line, dict) or not isinstance(line.get("rank"), int):
        return {}
    if isinstance(line.get("hardware"), dict) or isinstance(line.get("answer"), dict):
        return line
    is_result = isinstance(line.get("name"), str) and line.get("status") in (
        PASSED,
        FAILED,
        SKIPPED,
    )
    return line if is_result and isinstance(line.get("figures"), dict) else {}


def _result(
    job: Job, workload: Workload, lines: Sequence[Mapping[str, Any]], expected: int
) -> dict[str, Any]:
    by_rank = sorted(lines, key=lambda line: line["rank"])
    result: dict[str, Any] = {
        "name": workload.name,
        "status": PASSED,
        "reason": "",
        "seconds": max((float(line.get("seconds") or 0.0) for line in by_rank), default=0.0),
        "figures": dict(by_rank[0]["figures"]) if by_rank else {},
        "ranks": expected,
        "job": job.name,
    }
    for status in (FAILED, SKIPPED):
        for line in by_rank:
            if line["status"] == status:
                where = f" (rank {line['rank']})" if expected > 1 and status == FAILED else ""
                reason = str(line.get("reason") or "")[:_LONGEST_REASON]
                return {**result, "status": status, "reason": reason + where}
    if len(by_rank) < expected or not by_rank:
        return {**result, "status": FAILED, "reason": _missing(job)}
    return result


def _missing(job: Job) -> str:
    """Why a workload has no result."""
    cause = f": {job.error.message}" if job.error is not None else ""
    if job.status is Status.COMPLETED:
        return f"job `{job.name}` completed and left no result of it"
    return f"job `{job.name}` ended as {job.status.value} without a result of it{cause}"[
        :_LONGEST_REASON
    ]


def _distinct(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One row for each kind of node."""
    kinds: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        figures = {key: value for key, value in row.items() if key != "rank"}
        kinds.setdefault(json.dumps(figures, sort_keys=True), figures)
    return list(kinds.values())
