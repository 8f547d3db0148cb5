"""Files of a local run: its inputs come, its outputs go.

Owns: where they lie on the user's machine.
Leaves: single files to connection.py, when to program.py.
Always: an output that is refused is told, and its run has failed by it. Runs on the user's
machine, as the program does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.local_program import connection
from torchyard.local_program.connection import RunLink, enough_after
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import patiently
from torchyard.worker.files.uploads import files_below
from torchyard.worker.server.connection import Refused

_PATIENCE_S = 600.0
_PLACES_AT_ONCE = 200


def inputs(
    task: Mapping[str, Any], setup: Path, link: RunLink, go_on: Callable[[], None]
) -> dict[str, str]:
    """Where each input lies, once it is here.

    Args:
        go_on: asked before each file; may raise.

    Raises:
        Failure: one can't be had.
    """
    if not task["inputs"]:
        return {}
    try:
        told = patiently(lambda: link.call("GET", "/inputs"), enough_after(_PATIENCE_S))
    except Refused as refusal:
        raise Failure("input_failed", _said(refusal), "see where its dataset lies") from refusal
    places = {}
    for name, one in told["inputs"].items():
        folder = Path(task["inputs"][name].get("path_on_compute") or setup / "inputs" / name)
        folder.mkdir(parents=True, exist_ok=True)
        for file in one["files"]:
            go_on()
            target = folder / file["path"]
            try:
                patiently(lambda: connection.get(file["url"], target), enough_after(_PATIENCE_S))  # noqa: B023
            except Refused as refusal:
                message = f"file `{file['path']}` of input `{name}` can't be had: {_said(refusal)}"
                raise Failure("input_failed", message, "see where its dataset lies") from refusal
        places[name] = str(folder / one["files"][0]["path"] if one["is_file"] else folder)
    return places


def outputs(
    work: Path, link: RunLink, end: Mapping[str, Any], give_up: Callable[[], bool]
) -> Mapping[str, Any]:
    """Send them; what of the run's end changes when one is refused."""
    files = {f"outputs/{one.relative_to(work / 'outputs').as_posix()}": one
             for one in files_below(work / "outputs")}  # fmt: skip
    paths = sorted(files)
    for start in range(0, len(paths), _PLACES_AT_ONCE):
        some = {"paths": paths[start : start + _PLACES_AT_ONCE]}
        try:
            told = patiently(lambda: link.call("POST", "/places", some), give_up)  # noqa: B023
            for path, url in told["urls"].items():
                patiently(lambda: connection.put(url, files[path]), give_up)  # noqa: B023
        except Refused as refusal:
            failure = Failure("upload_refused", f"an output was refused: {_said(refusal)}")
            if end["status"] == "Completed":
                return {"status": "Failed", "error": failure.to_dict()}
            print(failure.message)
    return {}


def _said(refusal: Refused) -> str:
    error = refusal.body.get("error")
    return str((error or {}).get("message") or refusal)
