"""`yard model export-onnx`: a model as an ONNX file, by a job that compares both.

Owns: its options.
Leaves: the job to client/onnx/exports.py, exporting to torchyard.train.onnx.
Always: the command follows the job and ends with its exit code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidInput
from torchyard.cli.assets import verbs
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import (
    Session,
    common,
    name_argument,
    version_of,
    versioned,
    warn,
)
from torchyard.cli.terminal import next_steps
from torchyard.client.onnx import exports

if TYPE_CHECKING:
    from torchyard.client.client import Client
    from torchyard.client.job import Job


@click.command("export-onnx", cls=Verb)
@name_argument("model", "models")
@versioned
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SHAPE/DTYPE",
    help="Input of the model, as image=1,3,224,224/float32; once for each.",
)
@click.option(
    "--example",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Real values of the inputs: .npy, .npz, .json or .csv.",
)
@click.option(
    "--dynamic",
    multiple=True,
    metavar="NAME=DIMS",
    help="Dynamic dimensions, as image=0,2,3; or none. Default: dimension 0 of each input.",
)
@click.option(
    "--output-name",
    "output_names",
    multiple=True,
    metavar="NAME",
    help="Name of an output of the ONNX file; once for each, in their order.",
)
@click.option("--opset", type=int, default=None, help="Version of the operators. Default: torch's.")
@click.option(
    "--optimize",
    type=click.Choice(exports.LEVELS),
    default=None,
    help="Store the graph as ONNX Runtime optimizes it.",
)
@click.option("--quantize", is_flag=True, help="Store weights as 8-bit integers; print the cost.")
@click.option(
    "--tolerance",
    type=float,
    default=1e-3,
    show_default=True,
    help="Largest difference from the model's own outputs.",
)
@click.option(
    "--module",
    default="",
    metavar="FILE:CLASS",
    help="Class of a model that is a state dict, as model.py:Net.",
)
@click.option(
    "--module-args", default="", metavar="JSON", help="Arguments of the class, as a JSON object."
)
@click.option(
    "--allow-pickle", is_flag=True, help="Load a pickled module, which runs code that it holds."
)
@click.option(
    "--register-as",
    default="",
    metavar="NAME",
    help="Name of the new model. Default: the model's, with -onnx behind it.",
)
@click.option(
    "--environment",
    default="",
    metavar="NAME",
    help="Environment to run in. Default: that of the model's job, with what it lacks.",
)
@click.option("--compute", default="", metavar="NAME", help="Cluster to run on.")
@common
def export_onnx(
    session: Session,
    name: str,
    version: str,
    label: str,
    inputs: tuple[str, ...],
    dynamic: tuple[str, ...],
    module_args: str,
    optimize: str | None,
    **options: Any,
) -> int:
    """Export a model to ONNX, compare its answers with the model's, and register it.

    A job does it, in an environment with torch. It fails if an output differs by more than the
    tolerance.

    Example: yard model export-onnx digits --input image=1,1,8,8/float32 --optimize extended
    """
    name, version = version_of(name, version, label)
    export = exports.OnnxExport(
        inputs=tuple(exports.read_input(text) for text in inputs),
        dynamic=exports.read_dynamic(dynamic),
        module_args=_arguments(module_args),
        optimize=optimize or "",
        **options,
    )
    client = session.client()
    job, notice = client.models.submit_onnx_export(name, version or "latest", export)
    if notice:
        warn(notice)
    job = _ended(session, job)
    if job.status != "Completed":
        return job.raw.get("exit_code") or 1
    return _show(session, client, job)


def _ended(session: Session, job: Job) -> Job:
    if session.form.kind == "table":
        click.echo(f"Job `{job.name}` exports the model.", err=True)
        return job.stream()
    return job.wait()


def _show(session: Session, client: Client, job: Job) -> int:
    model = client.models.made_by(job)
    verbs.show_one(session, model)
    next_steps.say(session.form, next_steps.after_model(model.raw))
    return 0


def _arguments(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise InvalidInput(
            f"`--module-args` is not JSON: {error}", """write `--module-args '{"hidden": 64}'`"""
        ) from error
    if not isinstance(arguments, dict):
        raise InvalidInput(
            "`--module-args` is not a JSON object", """write `--module-args '{"hidden": 64}'`"""
        )
    return arguments
