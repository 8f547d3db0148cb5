"""`yard job …`: the verbs that show and change jobs.

Owns: the verbs, their options.
Leaves: creating to creation.py, lists to lists.py, one job's page to page.py, streams to
streaming.py, metrics to metrics.py, resource use to top.py, comparing to comparison.py, deleting to
deletion.py, requests to client/.
Always: a verb makes one request through the client.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.base.feature import load
from torchyard.base.terminal_text import ColouredBytes
from torchyard.cli.assets import lineages
from torchyard.cli.jobs import (
    comparison,
    deletion,
    explanations,
    lists,
    metrics,
    shell,
    show_services,
    sweeps,
    top,
)
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    changes_from,
    common,
    name_argument,
    tagged,
    warn,
)
from torchyard.cli.terminal import browser, next_steps, tables
from torchyard.features import features

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchyard.client.client import Client
    from torchyard.client.job import Job

group = noun("job")
_rank = click.option(
    "--rank",
    type=click.IntRange(min=0),
    default=None,
    metavar="RANK",
    help="Print only this rank's output, unchanged.",
)
_raw = click.option(
    "--raw",
    is_flag=True,
    help="Keep control characters of somebody else's job, which may control your terminal.",
)

_NAMES = (
    'quote a name that contains dots: `inputs."a.b"=1`. Names below `properties.` and `tags.` '
    "need no quotes."
)
_CHANGEABLE = ("display_name", "description", "tags", "experiment_name")


@group.command("create")
@click.argument("argument", metavar="[FILE]", required=False)
@click.option("-f", "--file", default="", metavar="FILE", help="YAML file of the job.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help=f"Set a key of the file; {_NAMES}",
)
@click.option("-n", "--name", default="", help="Job name. Default: a generated one.")
@click.option("-s", "--stream", "streamed", is_flag=True, help="Follow the job until it ends.")
@click.option("-a", "--save-as", default="", metavar="FILE", help="Write the job's JSON to FILE.")
@click.option("-e", "--web", "web", is_flag=True, help="Open the job's page in a browser.")
@accepts("--skip-validation")
@click.option(
    "--rehearse-on-cpu",
    is_flag=True,
    help="Run a script written for GPUs on the CPU, to try it out; recorded on the job.",
)
@click.option("--no-reuse", is_flag=True, help="Run every step of a pipeline.")
@common
def create(
    session: Session,
    argument: str | None,
    file: str,
    assignments: tuple[str, ...],
    name: str,
    streamed: bool,
    save_as: str,
    web: bool,
    rehearse_on_cpu: bool,
    no_reuse: bool,
) -> int:
    """Submit a job.

    Example: yard job create -f job.yml --set inputs.epochs=3 --stream
    """
    from torchyard.cli.jobs import creation

    if argument and file:
        raise click.UsageError(f"Two job files were given, '{file}' and '{argument}'.")
    if not (argument or file):
        raise click.UsageError("The job file is missing: use '-f FILE'.")
    if save_as and (not Path(save_as).absolute().parent.is_dir() or Path(save_as).is_dir()):
        # Checked before the job is submitted.
        raise InvalidInput(f"`{save_as}` can't be written", "name a file in an existing folder")
    path = file or argument or ""
    job = creation.create(session, path, assignments, name, rehearse_on_cpu, not no_reuse)
    if save_as:
        import json

        text = json.dumps(job.raw, indent=2, ensure_ascii=False) + "\n"
        try:
            Path(save_as).write_text(text, encoding="utf-8")
        except OSError as error:
            warn(f"the job was submitted, but `{save_as}` can't be written ({error.strerror})")
    if web:
        _open_page(session, job.name)
    if not streamed:
        _print(session, job)
        return 0
    return _stream(session, job.name, None)


@group.command("validate")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "-f", "--file", "named_files", multiple=True, metavar="FILE", help="YAML file of a job."
)
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
    """Validate job files without uploading anything.

    Example: yard job validate -f job.yml
    """
    from torchyard.cli.jobs import creation as job_creation

    if not (named_files or files):
        raise click.UsageError("The job file is missing: use '-f FILE'.")
    return job_creation.validate(session, [*named_files, *files], assignments)


@group.command("show")
@name_argument("job", "jobs")
@click.option("--code", "show_code", is_flag=True, help="Show the files of its code instead.")
@click.option("--plot", "plotted", is_flag=True, help="Draw charts of a sweep below its page.")
@click.option("-e", "--web", "web", is_flag=True, help="Open the job's page in a browser.")
@common
def show(session: Session, name: str, show_code: bool, plotted: bool, web: bool) -> None:
    """Show a job: its status, what it waits for, its error and metrics.

    Example: yard job show -n brave-otter --query status -o tsv
    """
    client = session.client()
    if web:
        _open_page(session, name)
    if not show_code:
        link = f"{client.transport.url}{browser.jobs_page(client.workspace, name)}"
        job = client.jobs.get(name)
        if plotted and job.type not in _further_pages():
            raise InvalidInput(
                f"job `{name}` is not a sweep",
                f"draw its metrics: `yard job metrics -n {name} --plot`",
            )
        _print(session, job, link, plotted)
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
@name_argument("job", "jobs")
@click.option(
    "-p",
    "--download-path",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Target folder. Default: one with the job's name.",
)
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@common
def code(session: Session, name: str, download_path: Path | None, overwrite: bool) -> None:
    """Download a job's code snapshot.

    Example: yard job code -n brave-otter -p as-it-was
    """
    folder = download_path or Path(name)
    written = session.client().jobs.restore_code(name, folder, overwrite=overwrite)
    tables.files(session.form, written)


@group.command("stream")
@name_argument("job", "jobs")
@_rank
@_raw
@common
def stream(session: Session, name: str, rank: int | None, raw: bool) -> int:
    """Print a job's output from the start and follow it until the job ends.

    The output goes to stdout, messages about the job to stderr; the exit code is the job's.

    Example: yard job stream -n brave-otter --rank 0 > rank-0.txt
    """
    return _stream(session, name, rank, cleans=not raw and _is_foreign(session.client(), name))


@group.command("logs")
@name_argument("job", "jobs")
@_rank
@_raw
@click.option("--follow", is_flag=True, help="Follow it until the job ends, as `stream` does.")
@common
def logs(session: Session, name: str, rank: int | None, raw: bool, follow: bool) -> int:
    """Print what a job has written so far.

    Of a job with several ranks, one rank's output follows the other's.

    Example: yard job logs -n brave-otter --rank 1
    """
    from torchyard.client.printing import bytes_of

    client = session.client()
    cleans = not raw and _is_foreign(client, name)
    if follow:
        return _stream(session, name, rank, cleans)
    job = client.jobs.get(name)
    output = job.logs(rank)
    if job.attempt > 1:
        click.echo(
            f"This is the output of attempt {job.attempt}, the last one; for that of the one "
            f"before: `yard job download -n {name} --path attempt-{job.attempt - 1}`",
            err=True,
        )
    content = output.encode()
    # In bytes, since click takes the colours out of a text that goes into a file.
    out = bytes_of(sys.stdout)
    out.write(ColouredBytes().take(content) if cleans else content)
    out.flush()
    return 0


@group.command("wait")
@name_argument("job", "jobs")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=None,
    metavar="SECONDS",
    help="Fail unless the job ends in so many seconds.",
)
@common
def wait(session: Session, name: str, timeout_s: float | None) -> int:
    """Wait until a job has ended, without its output; the exit code is the job's.

    Example: yard job wait -n brave-otter && yard job download -n brave-otter
    """
    from torchyard.cli.jobs import streaming

    try:
        job = session.client().jobs.wait(name, timeout_s)
    except KeyboardInterrupt:
        streaming.leave(name)
        return 130
    tables.one(session.form, job.raw, lambda: f"{job.name}  {tables.status(job.status)}")
    return streaming.exit_code(job.raw)


@group.command("cancel")
@name_argument("job", "jobs")
@click.option("--now", is_flag=True, help="Kill its ranks at once, without the grace period.")
@accepts("--no-wait")
@common
def cancel(session: Session, name: str, now: bool) -> None:
    """Cancel a job.

    Its ranks receive SIGTERM and have 10 seconds to save their work before they are killed. Use
    `--now` to kill them at once, also when the job is already being canceled.

    Example: yard job cancel -n brave-otter
    """
    job = session.client().jobs.cancel(name, now)
    tables.one(session.form, job.raw, lambda: f"{job.name}  {tables.status(job.status)}")


@group.command("preempt")
@name_argument("job", "jobs")
@common
def preempt(session: Session, name: str) -> None:
    """Preempt a running job, to test how it resumes.

    Its ranks receive SIGTERM and a grace period, as when another job needs the nodes; then the job
    is queued again, in the same run.

    Example: yard job preempt -n brave-otter
    """
    job = session.client().jobs.preempt(name)
    tables.one(session.form, job.raw, lambda: f"{job.name}  {tables.status(job.status)}")


@group.command("download")
@name_argument("job", "jobs")
@click.option(
    "-p",
    "--download-path",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    metavar="DIR",
    help="Folder for artifacts/ and named-outputs/. Default: the current one.",
)
@click.option(
    "--output-name", default="", metavar="OUTPUT", help="Download only this named output."
)
@click.option("--all", "everything", is_flag=True, help="Download artifacts and all named outputs.")
@click.option(
    "--path",
    "inner_path",
    default="",
    metavar="PATH",
    help="Download only this file, or this folder: outputs/model.pt.",
)
@common
def download(
    session: Session,
    name: str,
    download_path: Path,
    output_name: str,
    everything: bool,
    inner_path: str,
) -> None:
    """Download a job's artifacts and outputs.

    \b
    Example: yard job download -n brave-otter --all -p results
             yard job download @last --path outputs/model.pt
    """
    from torchyard.cli.terminal import progress

    if output_name and everything:
        raise click.UsageError("'--output-name' and '--all' can't be combined.")
    client = session.client()
    replaced: list[Path] = []
    with progress.bar("Downloading") as count:
        written = client.jobs.download(
            name,
            download_path,
            output_name=output_name,
            everything=everything,
            path=inner_path,
            count=count,
            on_replace=replaced.append,
        )
    tables.files(session.form, written)
    if not written:
        click.echo(f"Job `{name}` has no such files yet.", err=True)
    if replaced:
        warn(
            f"{len(replaced)} of these files were there before and are replaced, such as "
            f"`{min(replaced)}`; `--download-path DIR` names another folder"
        )


@group.command("archive")
@name_argument("job", "jobs")
@common
def archive(session: Session, name: str) -> None:
    """Hide a job from lists.

    Example: yard job archive -n brave-otter
    """
    session.client().jobs.archive(name)
    tables.done(session.form, {"name": name, "archived": True}, f"Job `{name}` is archived.")


@group.command("restore")
@name_argument("job", "jobs")
@common
def restore(session: Session, name: str) -> None:
    """Show an archived job in lists again.

    Example: yard job restore -n brave-otter
    """
    session.client().jobs.restore(name)
    tables.done(session.form, {"name": name, "archived": False}, f"Job `{name}` is restored.")


@group.command("update")
@name_argument("job", "jobs")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help="Set display_name, description, experiment_name or tags.<tag>.",
)
@click.option("--display-name", default=None, help="Display name.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to add or change.")
@click.option("-e", "--web", "web", is_flag=True, help="Open the job's page in a browser.")
@common
def update(
    session: Session,
    name: str,
    assignments: tuple[str, ...],
    tags: tuple[str, ...],
    web: bool,
    **options: Any,
) -> None:
    """Change a job's display name, description, experiment or tags.

    Example: yard job update -n brave-otter --set tags.kept=yes display_name="best so far"
    """
    changes = changes_from(assignments, {"tags": tagged(tags), **options}, _CHANGEABLE)
    _print(session, session.client().jobs.update(name, **changes))
    if web:
        _open_page(session, name)


@group.command("clone")
@name_argument("job", "jobs")
@click.option(
    "--new-name",
    default=None,
    metavar="NAME",
    help="Name of the new job. Default: a generated one.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help=f"Change a key; {_NAMES}",
)
@click.option("-s", "--stream", "streamed", is_flag=True, help="Follow the new job until it ends.")
@common
def clone(
    session: Session, name: str, new_name: str | None, assignments: tuple[str, ...], streamed: bool
) -> int:
    """Submit a job again with the same code and versions.

    Example: yard job clone -n brave-otter --set inputs.lr=0.01 --stream
    """
    from torchyard.cli.jobs import creation as job_creation

    job = job_creation.clone(session, name, new_name, assignments)
    if streamed:
        return _stream(session, job.name, None)
    _print(session, job)
    return 0


@group.command("retry")
@name_argument("job", "jobs")
@click.option(
    "--from-failed",
    is_flag=True,
    required=True,
    help="Keep the steps that had completed, and run the others.",
)
@click.option("-f", "--file", default="", metavar="FILE", help="The pipeline's file, mended.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help=f"Change a key of the file; {_NAMES}",
)
@click.option(
    "--new-name",
    default="",
    metavar="NAME",
    help="Name of the new pipeline. Default: the file's, or a generated one.",
)
@click.option("-s", "--stream", "streamed", is_flag=True, help="Follow it until it ends.")
@common
def retry(
    session: Session,
    name: str,
    from_failed: bool,
    file: str,
    assignments: tuple[str, ...],
    new_name: str,
    streamed: bool,
) -> int:
    """Submit a pipeline that has ended again, without the steps that had completed.

    Example: yard job retry -n nightly --from-failed -f pipeline.yml --stream
    """
    from torchyard.cli.jobs import creation as job_creation

    job = job_creation.retry(session, name, file, assignments, new_name)
    if streamed:
        return _stream(session, job.name, None)
    _print(session, job)
    return 0


group.add_command(lists.list_jobs)
group.add_command(metrics.metrics)
group.add_command(top.top)
group.add_command(sweeps.sweep)
group.add_command(sweeps.trials)
group.add_command(sweeps.sweep_extend)
group.add_command(comparison.compare)
group.add_command(explanations.explain)
group.add_command(lineages.of_job)
group.add_command(deletion.delete)
group.add_command(shell.shell)
group.add_command(show_services.show_services)
group.add_command(show_services.release)


def _is_foreign(client: Client, name: str) -> bool:
    return client.jobs.get(name).owner != client.users.me().user


def _stream(session: Session, name: str, rank: int | None, cleans: bool = False) -> int:
    from torchyard.cli.jobs import page, streaming

    client = session.client()
    try:
        job = streaming.stream(client, name, rank, cleans)
    except KeyboardInterrupt:
        streaming.leave(name)
        return 130
    form = session.form
    if form.query or form.output not in (None, "none"):
        tables.one(form, job, lambda: page.page(job))
    next_steps.say(form, _next_steps(client, job))
    return streaming.exit_code(job)


def _next_steps(client: Client, job: Mapping[str, Any]) -> list[str]:
    if job["status"] != "Completed":
        return []
    try:
        return next_steps.after_job(
            job, [file.path for file in client.jobs.get(job["name"]).files()]
        )
    except TorchyardError:
        return []  # only a hint


def _open_page(session: Session, name: str) -> None:
    """Open the job's page, and say where it is: output is for the job itself."""
    client = session.client()
    link = browser.show(client.transport, browser.jobs_page(client.workspace, name))
    click.echo(f"Web page: {link['url']}", err=True)


def _print(session: Session, job: Job, link: str = "", plotted: bool = False) -> None:
    """Show a job; with the `link` of its page where Azure's document has it.

    Args:
        plotted: draw charts below the page of a sweep.
    """
    raw = job.raw
    if link:
        raw = {**raw, "services": {"Studio": {"type": "Studio", "endpoint": link}}}
    tables.one(session.form, raw, lambda: _page(session, job, plotted))


def _page(session: Session, job: Job, plotted: bool) -> str:
    from torchyard.cli.jobs import page as job_page

    parts = [job_page.page(job.raw)]
    further = _further_pages().get(job.type)
    if further:
        parts.append(load(further)(session.client(), job, plotted))
    return "\n\n".join(parts)


def _further_pages() -> dict[str, str]:
    return {kind: page for feature in features() for kind, page in feature.job_pages.items()}
