"""`yard model score`: what an ONNX model answers for a file, through ONNX Runtime.

Owns: its options, what is said meanwhile, where the outputs go.
Leaves: the job to client/onnx/scoring.py.
Always: stdout has the outputs alone; everything about the job goes to stderr.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchyard.base.errors import InvalidInput
from torchyard.base.terminal_text import plain
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import (
    Session,
    common,
    name_argument,
    version_of,
    versioned,
    warn,
)
from torchyard.cli.terminal import tables
from torchyard.client.printing import Printer, print_frames

if TYPE_CHECKING:
    from torchyard.client.client import Client
    from torchyard.client.job import Job


@click.command("score", cls=Verb)
@name_argument("model", "models")
@versioned
@click.option(
    "--input",
    "source",
    required=True,
    metavar="FILE",
    help="Values of the inputs: .json as an endpoint takes it, .csv, .npy or .npz.",
)
@click.option("--output-file", default="", metavar="FILE", help="Write the outputs here, as JSON.")
@click.option(
    "--environment",
    default="",
    metavar="NAME",
    help="Environment to run in. Default: that of the model's job, with what it lacks.",
)
@click.option("--compute", default="", metavar="NAME", help="Cluster to run on.")
@common
def score(
    session: Session,
    name: str,
    version: str,
    label: str,
    source: str,
    output_file: str,
    environment: str,
    compute: str,
) -> None:
    """Score a file by an ONNX model through ONNX Runtime, and print the outputs as JSON.

    A job does it, in the model's environment with onnxruntime. A model without an ONNX file is
    scored by the newest ONNX model that was exported from it.

    Example: yard model score digits-onnx --input request.json
    """
    name, version = version_of(name, version, label)
    target = _target(output_file)
    client = session.client()
    job, notices = client.models.submit_score(
        name, version or "latest", input=source, environment=environment, compute=compute
    )
    for notice in notices:
        warn(notice)
    answer = client.models.answer_of(_ended(session, client, job))
    for output, shape in answer.shapes.items():
        click.echo(plain(f"Output `{output}`: {answer.dtypes[output]} of shape {shape}"), err=True)
    for output, count in answer.not_finite.items():
        warn(f"NaN or infinite values of output `{plain(output)}`: {count}; JSON has null there")
    shown = {"outputs": answer.outputs, "shapes": answer.shapes}
    if target is None:
        tables.one(session.form, shown, lambda: json.dumps(shown))
        return
    target.write_text(json.dumps(shown) + "\n", encoding="utf-8")
    written = {"path": str(target), "size_bytes": target.stat().st_size}
    tables.done(session.form, written, f"Wrote the outputs to `{target}`")


def _target(output_file: str) -> Path | None:
    """
    Raises:
        InvalidInput: no file can be written there.
    """
    if not output_file:
        return None
    target = Path(output_file)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise InvalidInput(
            f"`{output_file}` can't be written: "
            + ("it is a folder" if target.is_dir() else "its folder does not exist"),
            "name a file in a folder that exists: `--output-file answers.json`",
        )
    return target


def _ended(session: Session, client: Client, job: Job) -> Job:
    if session.form.kind != "table":
        return job.wait()

    def say(text: str) -> None:
        click.echo(text, err=True)

    say(f"Job `{job.name}` scores the input.")
    # What its program prints comes with the answer, or is the error.
    printer = Printer(io.BytesIO(), say, None, None)
    print_frames(client.jobs.follow(job.name, on_lost=printer.lost), printer)
    return job.refresh()
