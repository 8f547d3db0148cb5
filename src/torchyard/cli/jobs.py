"""`yard job …`.

Owns: the verbs, their options, the page of one job.
Leaves: reading files to documents.py, streams to streaming.py, requests to client.py.
Always: `create` uploads nothing before the document is read, its paths exist and the server has
found it valid.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from torchyard.answers import Job
from torchyard.base.errors import TorchyardError
from torchyard.cli import tables
from torchyard.cli.group import noun
from torchyard.cli.options import Session, common, named

group = noun("job")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda job: job["name"]),
    ("STATUS", lambda job: job["status"]),
    ("EXPERIMENT", lambda job: job["experiment_name"]),
    ("DISPLAY NAME", lambda job: job.get("display_name")),
    ("CREATED", lambda job: tables.moment(job.get("created_at"))),
    ("TOOK", lambda job: tables.since(job.get("started_at"), job.get("ended_at"))),
]


@group.command("create")
@click.option("-f", "--file", required=True, metavar="FILE", help="The job file (YAML).")
@click.option(
    "--set", "assignments", multiple=True, metavar="A.B=VALUE", help="Set a key of the file."
)
@click.option("-n", "--name", default="", help="The job's name; made up when absent.")
@click.option("--stream", "streamed", is_flag=True, help="Follow the job to its end.")
@common
def create(
    session: Session, file: str, assignments: tuple[str, ...], name: str, streamed: bool
) -> int:
    """Submit a job.

    Example: yard job create -f job.yml --set inputs.epochs=3 --stream
    """
    from torchyard.cli import documents

    document = documents.read(file)
    for assignment in assignments:
        document.set(assignment)
    client = session.client()
    try:
        job = client.jobs.create(
            document.value, document.folder, name=name, progress=_upload_progress()
        )
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    if not streamed:
        _print(session, job)
        return 0
    return _stream(session, job["name"], None)


@group.command("list")
@click.option("--experiment-name", default="", metavar="NAME", help="Only this experiment's.")
@click.option("--status", default="", metavar="STATUS", help="Only those with this status.")
@click.option(
    "-r",
    "--max-results",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="At most so many, the newest.",
)
@common
def list_jobs(session: Session, experiment_name: str, status: str, max_results: int) -> None:
    """List jobs, newest first.

    Example: yard job list --experiment-name digits -o json
    """
    found = session.client().jobs.list(
        experiment_name=experiment_name, status=status, max_results=max_results
    )
    tables.rows(session.output, found, _COLUMNS)


@group.command("show")
@named("job")
@common
def show(session: Session, name: str) -> None:
    """Show one job: where it stands, why it waits, what went wrong, its metrics.

    Example: yard job show -n brave-otter -o json
    """
    _print(session, session.client().jobs.get(name))


@group.command("stream")
@named("job")
@click.option(
    "--rank", type=click.IntRange(min=0), default=None, help="Only this rank's output, as it is."
)
@common
def stream(session: Session, name: str, rank: int | None) -> int:
    """Print a job's output from its first byte on, and follow it to its end.

    The job's bytes go to stdout, everything about it to stderr; the exit code is the job's.

    Example: yard job stream -n brave-otter --rank 0 > rank-0.txt
    """
    return _stream(session, name, rank)


@group.command("cancel")
@named("job")
@common
def cancel(session: Session, name: str) -> None:
    """Ask for a job's end.

    Example: yard job cancel -n brave-otter
    """
    job = session.client().jobs.cancel(name)
    tables.one(session.output, job, lambda: f"{job['name']}  {tables.status(job['status'])}")


@group.command("download")
@named("job")
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
    if output_name and everything:
        raise click.UsageError("'--output-name' and '--all' exclude each other.")
    written = session.client().jobs.download(
        name, download_path, output_name=output_name, everything=everything
    )
    found = [{"path": str(path), "size_bytes": path.stat().st_size} for path in written]
    tables.rows(
        session.output,
        found,
        [("FILE", lambda row: row["path"]), ("BYTES", lambda row: row["size_bytes"])],
    )
    if not found:
        click.echo(f"Job `{name}` has no such files yet.", err=True)


def _stream(session: Session, name: str, rank: int | None) -> int:
    from torchyard.cli import streaming

    client = session.client()
    try:
        job = streaming.stream(client, name, rank)
    except KeyboardInterrupt:
        streaming.leave(name)
        return 130
    if session.output_given and session.output != "none":
        tables.one(session.output, job, lambda: page(job))
    return streaming.exit_code(job)


def _print(session: Session, job: Job) -> None:
    tables.one(session.output, job, lambda: page(job))


def page(job: Job) -> str:
    """One job on one screen."""
    nodes, processes = job.get("node_count") or 1, job.get("processes_per_node") or 1
    ranks = f"{nodes} node{'s' * (nodes > 1)} of {processes} process{'es' * (processes > 1)}"
    took = tables.since(job.get("started_at"), job.get("ended_at"))
    exit_code = job.get("exit_code")
    parts = [
        tables.fields(
            [
                ("Name", job["name"]),
                ("Display name", job.get("display_name")),
                ("Status", tables.status(job["status"])),
                ("Waits for", job.get("waiting")),
                ("Experiment", job.get("experiment_name")),
                ("Compute", f"{job.get('compute') or 'local'}, {ranks}"),
                ("Created", f"{tables.moment(job.get('created_at'))} by {job.get('owner')}"),
                ("Took", took),
                ("Exit code", str(exit_code) if exit_code is not None else ""),
            ]
        )
    ]
    sections: list[tuple[str, str]] = [
        ("Stages", _stages(job)),
        ("Notices", "\n".join(f"  {notice}" for notice in job.get("notices") or [])),
        ("Parameters", _pairs(job.get("params"), str)),
        ("Metrics", _pairs(job.get("metrics"), tables.number)),
        ("Outputs", _outputs(job)),
        ("Models", "\n".join(f"  {m['name']}:{m['version']}" for m in job.get("models") or [])),
    ]
    parts += [f"{heading}\n{text}" for heading, text in sections if text]
    from torchyard.cli.streaming import error_text

    parts += [text for text in (error_text(job),) if text]
    return "\n\n".join(parts)


def _stages(job: Job) -> str:
    lines = []
    for stage in job.get("stages") or []:
        took = tables.since(stage.get("start"), stage.get("end"))
        running = "" if stage.get("end") else " so far"
        waited = stage.get("waited_for")
        lines.append((f"  {stage['name']}", f"{took}{running}" + (f"  {waited}" if waited else "")))
    return tables.fields(lines)


def _pairs(values: dict[str, Any] | None, shown: Callable[[Any], str]) -> str:
    return tables.fields((f"  {key}", shown(value)) for key, value in (values or {}).items())


def _outputs(job: Job) -> str:
    named_outputs = (job.get("spec") or {}).get("outputs") or {}
    lines = [f"  {name}" for name in named_outputs]
    if job["status"] in ("Completed", "Failed", "Canceled"):
        lines.append(f"  download them with `yard job download -n {job['name']} --all`")
    return "\n".join(lines)


def _upload_progress() -> Callable[[int, int], None] | None:
    """A line that counts, at a terminal only."""
    if not sys.stderr.isatty():
        return None

    def show_progress(sent: int, total: int) -> None:
        from torchyard.snapshots.walk import megabytes

        end = "\n" if sent >= total else ""
        click.echo(f"\rUploading {megabytes(sent)} of {megabytes(total)}{end}", err=True, nl=False)

    return show_progress
