"""The tools that change something: submit, cancel, rerun. They exist with `--allow-writes` only.

Owns: what each of them takes and answers.
Leaves: requests and uploads to the SDK, reading YAML to parsing/documents.py.
Always: nothing is uploaded before the server has found a document valid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from torchyard.base.documents import yaml_files
from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.cli.mcp.arguments import Arguments
from torchyard.cli.mcp.reading import JobAnswer, JobName, job_answer
from torchyard.cli.parsing import documents
from torchyard.client.client import Client


class SubmitJob(Arguments):
    path: str = Field(
        "", description="A job file. Relative paths start where `yard mcp` was started."
    )
    yaml: str = Field(
        "",
        description="The text of a job file instead of `path`.",
        max_length=yaml_files.LIMIT_BYTES,
    )
    folder: str = Field(
        "", description="With `yaml`: the folder in which its relative paths start."
    )
    name: str = Field("", description="The job's name. Without: the file's, or a generated one.")


def submit_job(client: Client, arguments: SubmitJob) -> JobAnswer:
    document = _document(arguments)
    try:
        job = client.jobs.create(document.value, document.folder, name=arguments.name)
    except TorchyardError as error:
        raise document.locate(error) from error
    answer = job_answer(client, job)
    if not job.was_submitted:
        answer["notices"].append(
            f"nothing was submitted: job `{job.name}` exists with the same content; for another "
            "run give another `name`"
        )
    return answer


def _document(arguments: SubmitJob) -> documents.Document:
    if bool(arguments.path) == bool(arguments.yaml):
        raise InvalidInput("`submit_job` takes either `path` or `yaml`", "give one of them")
    if arguments.path:
        return documents.read(arguments.path)
    folder = Path(arguments.folder)
    if not arguments.folder:
        raise InvalidInput("`yaml` needs `folder`", "name the folder that its paths start from")
    if not folder.is_dir():
        raise InvalidInput(f"`{folder}` is not a folder", "name one that exists")
    return documents.parse(arguments.yaml, "yaml", folder.absolute())


class CancelJob(Arguments):
    name: JobName
    now: bool = Field(False, description="Kill its ranks at once, without time to save their work.")


def cancel_job(client: Client, arguments: CancelJob) -> JobAnswer:
    return job_answer(client, client.jobs.cancel(arguments.name, arguments.now))


class RerunJob(Arguments):
    name: JobName
    set: dict[str, Any] = Field(
        {}, description='Values to change, by their paths: {"inputs.lr": 0.01, "tags.try": "2"}.'
    )
    new_name: str = Field("", description="The new job's name. Without: a generated one.")


def rerun_job(client: Client, arguments: RerunJob) -> JobAnswer:
    changes = {"name": arguments.new_name} if arguments.new_name else None
    return job_answer(client, client.jobs.clone(arguments.name, changes, set=arguments.set))
