"""Jobs from files: `create`, `validate`, `clone`.

Owns: the steps between a document and the client: `--set`, the position of errors, the bar.
Leaves: options to commands.py, reading to parsing/documents.py.
Always: `create` uploads nothing until the document is parsed, its paths exist and the server has
validated it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torchyard.base.errors import InvalidInput, TorchyardError, Unreachable
from torchyard.cli.parsing.documents import Document
from torchyard.cli.parsing.options import Session, document_from, warn
from torchyard.cli.terminal import progress, tables
from torchyard.client.job import Job


def create(
    session: Session,
    file: str,
    assignments: tuple[str, ...],
    name: str,
    rehearse_on_cpu: bool = False,
    reuse: bool = True,
) -> Job:
    document = document_from(file, assignments)
    if rehearse_on_cpu:
        _rehearse(document)
    return submit(session, document, name, reuse)


def submit(session: Session, document: Document, name: str = "", reuse: bool = True) -> Job:
    """Submit a document that was read or made."""
    client = session.client()
    try:
        with progress.uploading() as sent:
            job = client.jobs.create(
                document.value, document.folder, name=name, reuse=reuse, progress=sent
            )
    except KeyboardInterrupt:
        click.echo("\nThe job may have been submitted: see `yard job list`.", err=True)
        raise
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    if not job.was_submitted:
        warn(
            f"nothing was submitted: job `{job.name}` exists with the same content since "
            f"{tables.moment(job.raw['created_at'])} and is {job.status}; for another run give "
            f"another `name` or none, or `yard job clone {job.name}`"
        )
    return job


def _rehearse(document: Document) -> None:
    properties = document.value.get("properties") or {}
    if isinstance(properties, dict):  # otherwise the server reports the error
        document.value["properties"] = {**properties, "torchyard.rehearse_on_cpu": "true"}


def validate(session: Session, files: list[str], assignments: tuple[str, ...]) -> int:
    """Print `error:` and `hint:` for each invalid job file; returns 2 if there is one."""
    from torchyard.cli.parsing.group import say_all

    client = session.client()
    rows: list[dict[str, Any]] = []
    for file in files:
        row: dict[str, Any] = {"file": file, "valid": True, "notices": [], "error": None}
        try:
            document = document_from(file, assignments)
            try:
                row["notices"] = client.jobs.validate(document.value, document.folder)
            except TorchyardError as error:
                raise document.locate(error) from error.__cause__
        except Unreachable:
            raise
        except TorchyardError as error:
            row |= {"valid": False, "error": error.to_json()["error"]}
            say_all(error)
        rows.append(row)
        if row["valid"]:
            for notice in row["notices"]:
                click.echo(f"Notice: {file}: {notice}", err=True)
    tables.rows(
        session.form,
        rows,
        [("FILE", lambda row: row["file"]), ("VALID", lambda row: row["valid"])],
    )
    return 0 if all(row["valid"] for row in rows) else 2


def retry(
    session: Session, name: str, file: str, assignments: tuple[str, ...], new_name: str
) -> Job:
    """Submit a pipeline again that has ended, from its file where there is one.

    Raises:
        InvalidInput: keys are to be set, and there is no file.
    """
    client = session.client()
    if not file:
        if assignments:
            raise InvalidInput("`--set` changes a file", "name it with `-f FILE`")
        return client.jobs.retry(name, new_name=new_name)
    document = document_from(file, assignments)
    try:
        with progress.uploading() as sent:
            return client.jobs.retry(
                name, document.value, document.folder, new_name=new_name, progress=sent
            )
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__


def clone(session: Session, name: str, new_name: str | None, assignments: tuple[str, ...]) -> Job:
    """Submit job `name` again, with some keys set."""
    client = session.client()
    document = Document(f"job {name}", Path.cwd(), client.jobs.get(name).raw["spec"])
    for assignment in assignments:
        document.set(assignment)
    changed = {str(at[0]) for at in document.places}
    document.fill({"name": new_name})
    changes = {key: document.value[key] for key in changed | ({"name"} if new_name else set())}
    try:
        return client.jobs.clone(name, changes)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
