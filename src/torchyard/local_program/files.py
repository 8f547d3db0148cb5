"""Files of a local run: its inputs come, its outputs go.

Owns: where they are on the user's machine.
Leaves: single files to connection.py, when to program.py.
Always: a refused output is reported, and fails its run. Runs on the user's machine, as the
program does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from torchyard.local_program import connection as signed_addresses
from torchyard.local_program.connection import RunConnection
from torchyard.shared import retry_delays
from torchyard.shared.connection import Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry
from torchyard.worker.files.uploads import files_below

_WAIT_S = 600.0
_PATHS_PER_REQUEST = 200


def inputs(
    task: Mapping[str, Any],
    setup: Path,
    connection: RunConnection,
    raise_if_canceled: Callable[[], None],
) -> dict[str, str]:
    """Where each input is, once it is here.

    Raises:
        Failure: one can't be fetched.
    """
    if not task["inputs"]:
        return {}
    try:
        response = retry(lambda: connection.call("GET", "/inputs"), retry_delays.after(_WAIT_S))
    except Refused as refusal:
        raise Failure("input_failed", _message(refusal), "check the input's dataset") from refusal
    paths = {}
    for name, source in response["inputs"].items():
        folder = Path(task["inputs"][name].get("path_on_compute") or setup / "inputs" / name)
        folder.mkdir(parents=True, exist_ok=True)
        for file in source["files"]:
            raise_if_canceled()
            target = folder / file["path"]
            try:
                retry(
                    lambda: _fetch(connection, name, file, target),  # noqa: B023
                    retry_delays.after(_WAIT_S),
                )
            except Refused as refusal:
                raise Failure(
                    "input_failed",
                    f"file `{file['path']}` of input `{name}` can't be fetched: "
                    f"{_message(refusal)}",
                    "check the input's dataset",
                ) from refusal
        paths[name] = str(folder / source["files"][0]["path"] if source["is_file"] else folder)
    return paths


def _fetch(
    connection: RunConnection, input_name: str, file: Mapping[str, Any], target: Path
) -> None:
    """From its signed address, or through the server where it is behind a web address."""
    if "url" in file:
        signed_addresses.get(file["url"], target)
        return
    query = urlencode({"path": file["path"]})
    path = f"/inputs/{quote(input_name)}?{query}"
    size_bytes = int(file["size_bytes"])
    signed_addresses.store(target, lambda write: connection.download(path, write), size_bytes)


def outputs(
    work: Path, connection: RunConnection, end: Mapping[str, Any], give_up: Callable[[], bool]
) -> Mapping[str, Any]:
    """Send them; returns what of the run's end changes when one is refused."""
    files = {
        f"outputs/{file.relative_to(work / 'outputs').as_posix()}": file
        for file in files_below(work / "outputs")
    }
    paths = sorted(files)
    for start in range(0, len(paths), _PATHS_PER_REQUEST):
        request = {"paths": paths[start : start + _PATHS_PER_REQUEST]}
        try:
            response = retry(lambda: connection.call("POST", "/places", request), give_up)  # noqa: B023
            for path, url in response["urls"].items():
                retry(lambda: signed_addresses.put(url, files[path]), give_up)  # noqa: B023
        except Refused as refusal:
            failure = Failure("upload_refused", f"an output was refused: {_message(refusal)}")
            if end["status"] == "Completed":
                return {"status": "Failed", "error": failure.to_dict()}
            print(failure.message)
    return {}


def _message(refusal: Refused) -> str:
    error = refusal.body.get("error")
    return str((error or {}).get("message") or refusal)
