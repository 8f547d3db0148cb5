"""Score registered ONNX models through ONNX Runtime, by a job.

Owns: which model scores, the job's document and code, its environment, reading its answers.
Leaves: the input to inputs.py, running the model to score_program.py, which travels with the job.
Always: neither numpy nor ONNX Runtime is imported here.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.client.onnx import inputs
from torchyard.client.onnx.environments import Definition, Needs

EXPERIMENT = "onnx-scores"
NEEDS = Needs(
    ("onnxruntime",),
    {"pip_requirements": ["onnxruntime"]},
    "an environment with `onnxruntime` alone",
)

_ANSWERS = "outputs/answers.json"
_SUFFIX = ".onnx"
_REFUSED = 2
# Sent as files, never imported: they run in the job.
_PROGRAM = Path(__file__).with_name("score_program.py")
_SCORE_FILE = (
    Path(__file__).resolve().parents[2] / "endpoints" / "running" / "in_instance" / "score_file.py"
)


@dataclass(frozen=True)
class ModelAnswer:
    """What a model answered.

    Args:
        outputs: by their names, as lists; None for a number that is not finite.
        shapes: of each output.
        dtypes: of each output, such as `float32`.
        not_finite: how many numbers of an output are NaN or infinite, where there are any.
        model: the ONNX model that answered, as `digits-onnx:1`.
        job: the name of the job that ran it.
    """

    outputs: Mapping[str, Any]
    shapes: Mapping[str, Sequence[int]]
    dtypes: Mapping[str, str]
    not_finite: Mapping[str, int]
    model: str
    job: str


def tensors_of(model: Mapping[str, Any]) -> list[inputs.Tensor]:
    """What an ONNX model takes; empty where the server does not know."""
    signature = model.get("signature") or {}
    if signature.get("format") != "onnx":
        return []
    return [
        inputs.Tensor(
            tensor["name"],
            tensor["dtype"],
            None if tensor["shape"] is None else tuple(tensor["shape"]),
        )
        for tensor in signature["inputs"]
    ]


def is_onnx(model: Mapping[str, Any]) -> bool:
    """
    Raises:
        InvalidInput: it has several ONNX files.
    """
    paths = [str(file["path"]) for file in model.get("files") or ()]
    files = [path for path in paths if path.lower().endswith(_SUFFIX)]
    if len(files) > 1:
        raise InvalidInput(
            f"model `{title_of(model)}` has several ONNX files: {', '.join(files[:5])}",
            "register the one to score: `yard model create -n NAME -p FILE`",
        )
    return bool(files)


def newest_export(
    model: Mapping[str, Any], candidates: Iterable[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The newest of the ONNX models that were exported from `model`.

    Raises:
        InvalidInput: there is none.
    """
    title = title_of(model)
    exports = [
        candidate
        for candidate in candidates
        if (candidate.get("properties") or {}).get("onnx.source") == title and is_onnx(candidate)
    ]
    if not exports:
        raise InvalidInput(
            f"model `{title}` has no ONNX file, and no ONNX model was exported from it",
            f"export it, and score that: `yard model export-onnx {title} --example FILE`",
        )
    return max(exports, key=lambda export: str(export.get("created_at") or ""))


def title_of(model: Mapping[str, Any]) -> str:
    return f"{model['name']}:{model['version']}"


@contextmanager
def job_document(
    model: Mapping[str, Any],
    request: inputs.ScoreRequest,
    environment: Definition,
    compute: str = "",
) -> Iterator[dict[str, Any]]:
    """The job, whose code lies in a folder until the block ends."""
    title = title_of(model)
    with tempfile.TemporaryDirectory(prefix="onnx-score-") as folder:
        for file in (_PROGRAM, _SCORE_FILE):
            shutil.copyfile(file, Path(folder) / file.name)
        (Path(folder) / request.name).write_bytes(request.content)
        document: dict[str, Any] = {
            "command": f'python {_PROGRAM.name} "${{{{inputs.model}}}}" {request.name}',
            "code": folder,
            "environment": environment,
            "experiment_name": EXPERIMENT,
            "display_name": f"{title} scores",
            "description": f"scores an input by the ONNX model {title}",
            "tags": {"torchyard": "onnx score", "model": title},
            "inputs": {"model": {"type": "custom_model", "path": f"azureml:{title}"}},
        }
        if compute:
            document["compute"] = compute
        yield document


def answer_of(
    read_file: Callable[[str, str], bytes], job: str, exit_code: int | None, model: str
) -> ModelAnswer | None:
    """What the job has written; None where it failed for another reason than its input.

    Args:
        read_file: gets a job's name and a file's path.

    Raises:
        InvalidInput: the input does not fit the model.
    """
    if exit_code not in (0, _REFUSED):
        return None
    try:
        body = json.loads(read_file(job, _ANSWERS))
    except NotFound:
        return None
    if "error" in body:
        raise InvalidInput(body["error"]["message"], body["error"]["hint"])
    return ModelAnswer(**body, model=model, job=job)
