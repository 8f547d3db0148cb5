"""The command that usually comes next, on the way from a job to a model that answers.

Owns: which command that is, and its line.
Leaves: results, and whether to ask the server for more, to the commands.
Always: printed for people only, on stderr; what comes from a job or a person is quoted for a shell
and has no control characters.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import click

from torchyard.base.terminal_text import plain
from torchyard.cli.terminal import tables

# Files that hold a network: those that serve as they are, and those that can be exported.
_SERVED = (".onnx", ".pt2", ".ts", ".torchscript")
_EXPORTED = (".pt", ".pth", ".pkl")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,60}\Z")


def say(form: tables.Form, lines: Sequence[str]) -> None:
    if form.kind == "table" and lines:
        click.echo(err=True)
        for number, line in enumerate(lines):
            click.echo(f"{'Next:' if number == 0 else '     '} {plain(line)}", err=True)


def after_job(job: Mapping[str, Any], paths: Iterable[str]) -> list[str]:
    """Registering the model that a job has left, where it is clear which file that is.

    Args:
        paths: of the job's files.
    """
    path = model_path(paths)
    if not path or job.get("status") != "Completed" or job.get("models"):
        return []
    experiment = str(job.get("experiment_name") or "")
    name = experiment if _NAME.match(experiment) else "MODEL"
    return [_line("yard", "model", "create", "-n", name, "-p", f"runs:/{job['name']}/{path}")]


def model_path(paths: Iterable[str]) -> str:
    """The model's file or MLflow folder below `outputs`; empty where none or several could be."""
    models = []
    for path in map(PurePosixPath, paths):
        if path.parts[:1] != ("outputs",):
            continue
        if path.name == "MLmodel" and len(path.parts) > 2:
            models.append(path.parent)
        elif path.suffix.lower() in (*_SERVED, *_EXPORTED):
            models.append(path)
    depth = min((len(path.parts) for path in models), default=0)
    highest = [str(path) for path in models if len(path.parts) == depth]
    return highest[0] if len(highest) == 1 else ""


def after_model(model: Mapping[str, Any]) -> list[str]:
    """Deploying it, or first exporting it where no server reads its file."""
    name = str(model["name"])
    files = [
        file["path"] if isinstance(file, Mapping) else file for file in model.get("files") or ()
    ]
    suffixes = {PurePosixPath(str(file)).suffix.lower() for file in files}
    if model.get("type") == "mlflow_model" or suffixes & set(_SERVED):
        score = f"{_line('yard', 'model', 'score', name)} --input FILE   (without an endpoint)"
        return [_line("yard", "model", "deploy", name), *([score] if ".onnx" in suffixes else [])]
    with_script = f"{_line('yard', 'model', 'deploy', name)} --code FOLDER"
    if suffixes & set(_EXPORTED):
        export = f"{_line('yard', 'model', 'export-onnx', name)} --example FILE"
        return [
            f"{export}   (a state dict needs --module FILE:CLASS, too)",
            f"{with_script}   (with a score.py in FOLDER)",
        ]
    return [f"{with_script}   (with a score.py in FOLDER)"]


def after_deploy(model: Mapping[str, Any], endpoint: str, deployment: str, wait: bool) -> list[str]:
    """Asking the endpoint; how, where the model has a signature.

    Args:
        wait: whether it answers already.
    """
    if not wait:
        return [_line("yard", "online-deployment", "show", "-n", deployment, "-e", endpoint)]
    invoke = _line("yard", "online-endpoint", "invoke", "-n", endpoint, "-r", "request.json")
    body = _body(model.get("signature") or {})
    delete = _line("yard", "online-endpoint", "delete", "-n", endpoint)
    return [invoke, *([f"with request.json: {body}"] if body else []), f"{delete}   (to end it)"]


def _body(signature: Mapping[str, Any]) -> str:
    inputs = signature.get("inputs") or []
    if signature.get("format") != "onnx" or not inputs:
        return ""
    values = {
        tensor["name"]: f"{tensor['dtype']} of shape "
        f"[{', '.join(str(size or '?') for size in tensor.get('shape') or ())}]"
        for tensor in inputs
    }
    if len(values) == 1:
        return f'{{"data": {next(iter(values.values()))}}}'
    pairs = ", ".join(f'"{name}": {text}' for name, text in values.items())
    return f'{{"inputs": {{{pairs}}}}}'


def _line(*words: str) -> str:
    return shlex.join(words)
