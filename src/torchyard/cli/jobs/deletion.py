"""`yard job delete`: delete jobs and everything they left, permanently.

Owns: the verb, its preview and question.
Leaves: which jobs must be kept to the server.
Always: without `--yes`, it shows what will be deleted and asks for confirmation.
"""

from __future__ import annotations

import re
from typing import Any

import click

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.cli.parsing.completion import statuses
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, confirm, many_names, warn
from torchyard.cli.terminal import tables
from torchyard.shared.sizes import size_text

_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SHOWN = 20

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda job: job["name"]),
    ("STATUS", lambda job: job["status"]),
    ("FILES", lambda job: job["files"]),
    ("SIZE", lambda job: size_text(job["size_bytes"])),
    ("POINTS", lambda job: job["points"]),
]


@click.command("delete", cls=Verb)
@many_names("job", "jobs")
@click.option(
    *("--experiment-name", "--experiment", "experiment_name"),
    default="",
    metavar="NAME",
    help="Delete jobs of this experiment.",
)
@click.option(
    "--status",
    default="",
    metavar="STATUS",
    help="Delete jobs with this status.",
    shell_complete=statuses,
)
@click.option(
    "--older-than",
    default="",
    metavar="AGE",
    help="Delete jobs that ended longer ago: 30d, 12h, 2w.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@common
def delete(
    session: Session,
    names: tuple[str, ...],
    experiment_name: str,
    status: str,
    older_than: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete jobs, their children, files, logs and metrics permanently.

    Registered models are copies and stay. A job that is running, or whose files are registered as
    data, is not deleted: delete the data first.

    \b
    Example: yard job delete brave-otter
             yard job delete --experiment-name digits --status Failed --older-than 30d
    """
    choice: dict[str, Any] = {
        "experiment_name": experiment_name,
        "status": status,
        "older_than_s": _seconds(older_than) if older_than else None,
    }
    choice = {key: value for key, value in choice.items() if value not in ("", None)}
    if bool(names) == bool(choice):
        raise click.UsageError(
            "Name jobs, or select them with '--experiment-name', '--status' and '--older-than'."
        )
    if names:
        choice = {"names": list(names)}
    jobs = session.client().jobs
    if yes and not dry_run:
        _done(session, jobs.delete_where(**choice).raw)
        return
    plan = jobs.delete_where(**choice, dry_run=True).raw
    if names and plan["kept"]:
        raise Conflict(plan["kept"][0]["reason"], plan["kept"][0]["hint"])
    _warn_of_kept(plan)
    if dry_run:
        tables.rows(session.form, plan["jobs"], _COLUMNS)
        return
    if not plan["jobs"]:
        _done(session, {"deleted": [], "pending": [], "kept": plan["kept"]}, report_kept=False)
        return
    _show(plan["jobs"])
    confirm(_question(plan["jobs"]), yes)
    # By name: nothing is deleted that was not shown.
    job_names = [job["name"] for job in plan["jobs"]]
    _done(session, jobs.delete_where(names=job_names).raw, report_kept=False)


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mhdw])", age.strip().lower())
    if match is None:
        raise InvalidInput(
            f"`--older-than {age}` is not an age", "write `30d`, `12h`, `2w` or `90m`"
        )
    return float(match[1]) * _SECONDS[match[2]]


def _show(jobs: list[dict[str, Any]]) -> None:
    click.echo(tables.table_text(jobs[:_SHOWN], _COLUMNS), err=True)
    if len(jobs) > _SHOWN:
        click.echo(f"… and {len(jobs) - _SHOWN} more", err=True)


def _question(jobs: list[dict[str, Any]]) -> str:
    which = f"job `{jobs[0]['name']}`" if len(jobs) == 1 else f"{len(jobs)} jobs"
    total = size_text(sum(job["size_bytes"] for job in jobs))
    points = sum(job["points"] for job in jobs)
    return f"Delete {which} with {total} of files and {points} metric points permanently?"


def _done(session: Session, answer: dict[str, Any], report_kept: bool = True) -> None:
    if report_kept:
        _warn_of_kept(answer)
    names = answer["deleted"]
    if not names:
        tables.done(session.form, answer, "There is nothing to delete.")
        return
    which = f"Job `{names[0]}` is" if len(names) == 1 else f"{len(names)} jobs are"
    text = f"{which} deleted."
    if answer["pending"]:
        count = len(answer["pending"])
        whose = "Its files" if len(names) == 1 else f"The files of {count} of them"
        text += f" {whose} are still being removed."
    tables.done(session.form, answer, text)


def _warn_of_kept(answer: dict[str, Any]) -> None:
    for job in answer["kept"][:_SHOWN]:
        warn(f"{job['reason']}")
    if len(answer["kept"]) > _SHOWN:
        warn(f"{len(answer['kept']) - _SHOWN} more are kept")
