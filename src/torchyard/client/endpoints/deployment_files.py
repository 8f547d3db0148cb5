"""What a deployment's document names: its endpoint, itself, and files of this machine, uploaded.

Owns: `name`, `endpoint_name`, `model.path` and `code_configuration.code`.
Leaves: finding, hashing and sending to snapshots/, as for a job's file, and its environment.
Always: an error carries the place in the deployment's document; nothing is sent before all of it
was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.client.snapshots import job_files, local_paths

if TYPE_CHECKING:
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress

_MODEL, _CODE = ("inputs", "model", "path"), ("code",)
_FOLDER = re.compile(r"[^\w.-]", re.ASCII)


def names_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """The endpoint's name and the deployment's.

    Raises:
        InvalidInput: the document lacks one.
    """
    for key in ("name", "endpoint_name"):
        if not isinstance(document.get(key), str) or not document[key]:
            option = key.replace("_", "-")
            raise InvalidInput(
                f"a deployment needs `{key}`", f"give it with `--{option}`", at=(key,)
            )
    return document["endpoint_name"], document["name"]


@contextmanager
def uploading(
    document: Mapping[str, Any],
    folder: Path,
    snapshots: Snapshots,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Upload what the document names; the block gets it with a snapshot for each local path.

    Errors in the block about what a file of the document holds begin with their place in it.

    Args:
        folder: what relative paths are relative to.

    Raises:
        InvalidSpec: a path does not exist.
    """
    body = dict(document)
    model, code = body.get("model"), body.get("code_configuration")
    job: dict[str, Any] = {"command": "true"}
    if "environment" in body:
        job["environment"] = body["environment"]
    if isinstance(code, dict) and "code" in code:
        job["code"] = code["code"]
    path = model.get("path") if isinstance(model, dict) else model
    is_local = isinstance(path, str) and path and not local_paths.is_elsewhere(path)
    if is_local and isinstance(path, str):
        source = local_paths.local_path(path, folder)
        kind = "uri_folder" if source.is_dir() else "uri_file"
        job["inputs"] = {"model": {"type": kind, "path": path}}
    try:
        files = job_files.find(job, folder, snapshots.limits)
        with files.with_code(snapshots.limits) as ready:
            sent = snapshots.send_job_files(ready, progress)
    except TorchyardError as error:
        for each in (error, *error.others):
            if each.at == _MODEL:
                each.at = ("model", "path") if isinstance(model, dict) else ("model",)
            elif each.at == _CODE:
                each.at = ("code_configuration", "code")
        raise
    if "environment" in sent:
        body["environment"] = sent["environment"]
    if isinstance(code, dict) and "code" in sent:
        body["code_configuration"] = {**code, "code": sent["code"]}
    if is_local:
        written = dict(model) if isinstance(model, dict) else {}
        written["path"] = sent["inputs"]["model"]["path"]
        if source.is_dir():
            # As in Azure, the folder itself is below AZUREML_MODEL_DIR.
            written["folder"] = _FOLDER.sub("_", source.resolve().name)[:100] or "model"
        body["model"] = written
    with files.locating():
        yield body
