"""`yard job …`: the verbs that look at jobs and change them.

Owns: the verbs, their options.
Leaves: creating to creation.py, one job's page to page.py, streams to streaming.py, metrics
to metrics.py, comparing to comparison.py, deleting to deletion.py, requests to client/.
Always: a verb is one question to the client.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidInput
from torchyard.cli.jobs import comparison, deletion, metrics
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    archivable,
    changes_from,
    common,
    named,
    tagged,
    warn,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.client.job import Job

group = noun("job")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda job: job["name"]),
    ("STATUS", lambda job: job["status"]),
    ("EXPERIMENT", lambda job: job["experiment_name"]),
    ("DISPLAY NAME", lambda job: _of_its_own(job)),
    ("CREATED", lambda job: tables.moment(job.get("created_at"))),
    ("TOOK", lambda job: tables.since(job.get("started_at"), job.get("ended_at"))),
]
_NAMES = (
    'a name with dots goes in quotes: `inputs."a.b"=1`. All behind `properties.` and `tags.` is '
    "one name."
)
_CHANGEABLE = ("display_name", "description", "tags")


@group.command("create")
@click.argument("given", metavar="[FILE]", required=False)
@click.option("-f", "--file", default="", metavar="FILE", help="The job file (YAML).")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help=f"Set a key of the file; {_NAMES}",
)
@click.option("-n", "--name", default="", help="The job's name; made up when absent.")
@click.option("-s", "--stream", "streamed", is_flag=True, help="Follow the job to its end.")
@click.option("-a", "--save-as", default="", metavar="FILE", help="Keep the job's JSON there.")
@accepts("--web", "--skip-validation")
@click.option(
    "--rehearse-on-cpu",
    is_flag=True,
    help="Try a script that is written for GPUs on the CPU; recorded on the job.",
)
@common
def create(
    session: Session,
    given: str | None,
    file: str,
    assignments: tuple[str, ...],
    name: str,
    streamed: bool,
    save_as: str,
    rehearse_on_cpu: bool,
) -> int:
    """Submit a job.

    Example: yard job create -f job.yml --set inputs.epochs=3 --stream
    """
    from torchyard.cli.jobs import creation

    if given and file:
        raise click.UsageError(f"Two job files are given, '{file}' and '{given}'.")
    if not (given or file):
        raise click.UsageError("The job file is missing: write '-f FILE'.")
    if save_as and (not Path(save_as).absolute().parent.is_dir() or Path(save_as).is_dir()):
        # Before there is a job, not after.
        raise InvalidInput(f"nothing can be written to `{save_as}`", "name a file in a folder")
    job = creation.create(session, file or given or "", assignments, name, rehearse_on_cpu)
    if save_as:
        import json

        text = json.dumps(job.raw, indent=2, ensure_ascii=False) + "\n"
        try:
            Path(save_as).write_text(text, encoding="utf-8")
        except OSError as error:
            warn(f"the job is submitted, but `{save_as}` can't be written ({error.strerror})")
    if not streamed:
        _print(session, job)
        return 0
    return _stream(session, job.name, None)


@group.command("validate")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-f", "--file", "named_files", multiple=True, metavar="FILE", help="A job file.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help=f"Set a key of each file; {_NAMES}",
)
@common
def validate(
    session: Session,
    files: tuple[str, ...],
    named_files: tuple[str, ...],
    assignments: tuple[str, ...],
) -> int:
    """Say what is wrong with job files; nothing is uploaded.

    Example: yard job validate -f job.yml
    """
    from torchyard.cli.jobs import creation as job_creation

    if not (named_files or files):
        raise click.UsageError("The job file is missing: write '-f FILE'.")
    return job_creation.validate(session, [*named_files, *files], assignments)


@group.command("list")
@click.option("--experiment-name", default="", metavar="NAME", help="Only this experiment's.")
@click.option("--status", default="", metavar="STATUS", help="Only those with this status.")
@click.option(
    "-p", "--parent-job-name", default="", metavar="NAME", help="Only the children of this job."
)
@click.option(
    "-r",
    "--max-results",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=50,
    show_default=True,
    help="At most so many, the newest.",
)
@click.option("--all-results", metavar="true|false", type=bool, default=False, help="All of them.")
@archivable
@common
def list_jobs(
    session: Session,
    experiment_name: str,
    status: str,
    parent_job_name: str,
    max_results: int,
    all_results: bool,
    archived: str,
) -> None:
    """List jobs, newest first.

    Example: yard job list --experiment-name digits -o json
    """
    found = session.client().jobs.list(
        experiment_name=experiment_name,
        status=status,
        parent_job_name=parent_job_name,
        max_results=None if all_results else max_results,
        archived=archived == "too",
        only_archived=archived == "only",
    )
    tables.rows(session.form, found.raw, _COLUMNS)


@group.command("show")
@named("job", "jobs")
@click.option("--code", "show_code", is_flag=True, help="The files of its code instead.")
@accepts("--web")
@common
def show(session: Session, name: str, show_code: bool) -> None:
    """Show one job: where it stands, why it waits, what went wrong, its metrics.

    Example: yard job show -n brave-otter --query status -o tsv
    """
    client = session.client()
    if not show_code:
        _print(session, client.jobs.get(name))
        return
    tables.rows(
        session.form,
        client.jobs.code(name).raw,
        [
            ("FILE", lambda file: file["path"]),
            ("BYTES", lambda file: file["size"]),
            ("SHA256", lambda file: file["sha256"][:12]),
        ],
    )


@group.command("code")
@named("job", "jobs")
@click.option(
    "-p",
    "--download-path",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Where to. Default: a folder with the job's name, here.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
@common
def code(session: Session, name: str, download_path: Path | None, overwrite: bool) -> None:
    """Put the code that a job ran into a folder, as it was then.

    Example: yard job code -n brave-otter -p as-it-was
    """
    folder = download_path or Path(name)
    written = session.client().jobs.restore_code(name, folder, overwrite=overwrite)
    tables.files(session.form, written)


@group.command("stream")
@named("job", "jobs")
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    default=None,
    metavar="RANK",
    help="Only this rank's output, as it is.",
)
@common
def stream(session: Session, name: str, rank: int | None) -> int:
    """Print a job's output from its first byte on, and follow it to its end.

    The job's bytes go to stdout, everything about it to stderr; the exit code is the job's.

    Example: yard job stream -n brave-otter --rank 0 > rank-0.txt
    """
    return _stream(session, name, rank)


@group.command("cancel")
@named("job", "jobs")
@accepts("--no-wait")
@common
def cancel(session: Session, name: str) -> None:
    """Ask for a job's end.

    Example: yard job cancel -n brave-otter
    """
    job = session.client().jobs.cancel(name)
    tables.one(session.form, job.raw, lambda: f"{job.name}  {tables.status(job.status)}")


@group.command("preempt")
@named("job", "jobs")
@common
def preempt(session: Session, name: str) -> None:
    """Take a running job's nodes away, to try how it goes on.

    Its ranks get SIGTERM and a grace, as when another job needs the nodes; then it is queued
    again, in the same run.

    Example: yard job preempt -n brave-otter
    """
    job = session.client().jobs.preempt(name)
    tables.one(session.form, job.raw, lambda: f"{job.name}  {tables.status(job.status)}")


@group.command("download")
@named("job", "jobs")
@click.option(
    "-p",
    "--download-path",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    metavar="DIR",
    help="Where to; artifacts/ and named-outputs/ are made in it. Default: here.",
)
@click.option("--output-name", default="", metavar="OUTPUT", help="Only this named output.")
@click.option("--all", "everything", is_flag=True, help="Artifacts and all named outputs.")
@common
def download(
    session: Session, name: str, download_path: Path, output_name: str, everything: bool
) -> None:
    """Download what a job made.

    Example: yard job download -n brave-otter --all -p results
    """
    from torchyard.cli.terminal import progress

    if output_name and everything:
        raise click.UsageError("'--output-name' and '--all' exclude each other.")
    client = session.client()
    with progress.shown("Downloading") as count:
        written = client.jobs.download(
            name, download_path, output_name=output_name, everything=everything, count=count
        )
    tables.files(session.form, written)
    if not written:
        click.echo(f"Job `{name}` has no such files yet.", err=True)


@group.command("archive")
@named("job", "jobs")
@common
def archive(session: Session, name: str) -> None:
    """Hide a job from lists.

    Example: yard job archive -n brave-otter
    """
    session.client().jobs.archive(name)
    tables.done(session.form, {"name": name, "archived": True}, f"Job `{name}` is archived.")


@group.command("restore")
@named("job", "jobs")
@common
def restore(session: Session, name: str) -> None:
    """Take back `archive`.

    Example: yard job restore -n brave-otter
    """
    session.client().jobs.restore(name)
    tables.done(session.form, {"name": name, "archived": False}, f"Job `{name}` is back.")


@group.command("update")
@named("job", "jobs")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help="display_name, description, tags.<tag>.",
)
@click.option("--display-name", default=None, help="How it is called in lists.")
@click.option("--description", default=None, help="In your words.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to add or change.")
@accepts("--web")
@common
def update(
    session: Session, name: str, assignments: tuple[str, ...], tags: tuple[str, ...], **given: Any
) -> None:
    """Change how a job is called and described.

    Example: yard job update -n brave-otter --set tags.kept=yes display_name="best so far"
    """
    changes = changes_from(assignments, {"tags": tagged(tags), **given}, _CHANGEABLE)
    _print(session, session.client().jobs.update(name, **changes))


@group.command("clone")
@named("job", "jobs")
@click.option("--new-name", default=None, metavar="NAME", help="Made up when absent.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help=f"What is to be different; {_NAMES}",
)
@click.option("-s", "--stream", "streamed", is_flag=True, help="Follow the new job to its end.")
@common
def clone(
    session: Session, name: str, new_name: str | None, assignments: tuple[str, ...], streamed: bool
) -> int:
    """Submit a job once more, with the code and the versions it had.

    Example: yard job clone -n brave-otter --set inputs.lr=0.01 --stream
    """
    from torchyard.cli.jobs import creation as job_creation

    job = job_creation.clone(session, name, new_name, assignments)
    if streamed:
        return _stream(session, job.name, None)
    _print(session, job)
    return 0


group.add_command(metrics.metrics)
group.add_command(comparison.compare)
group.add_command(deletion.delete)


def _stream(session: Session, name: str, rank: int | None) -> int:
    from torchyard.cli.jobs import page, streaming

    client = session.client()
    try:
        job = streaming.stream(client, name, rank)
    except KeyboardInterrupt:
        streaming.leave(name)
        return 130
    form = session.form
    if form.query or form.output not in (None, "none"):
        tables.one(form, job, lambda: page.page(job))
    return streaming.exit_code(job)


def _print(session: Session, job: Job) -> None:
    from torchyard.cli.jobs import page as job_page

    tables.one(session.form, job.raw, lambda: job_page.page(job.raw))


def _of_its_own(job: Any) -> str | None:
    """The display name, where somebody gave one."""
    shown: str | None = job.get("display_name")
    return None if shown == job["name"] else shown
