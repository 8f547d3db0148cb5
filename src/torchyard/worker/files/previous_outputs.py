"""What the attempts before this one wrote: brought back before the ranks start.

Owns: asking the server for `./outputs` and the named outputs as they are there.
Leaves: which files those are to the server.
Always: a script that is tried again finds its files where it wrote them; every node gets all.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry
from torchyard.worker.files.blobs import inside
from torchyard.worker.files.inputs import plain_name
from torchyard.worker.files.layout import Folders
from torchyard.worker.files.remote_inputs import fetch


def bring(link: Connection, folders: Folders, give_up: Callable[[], bool]) -> int:
    """Write the files below `./outputs` and the folders of the named outputs; returns how many.

    Raises:
        Failure: the server does not give one.
        OSError: it is away, and `give_up` said so.
    """
    try:
        told = retry(lambda: link.call("GET", "/earlier"), give_up)
        for file in told["files"]:
            output, path = str(file["output"]), str(file["path"])
            below = folders.outputs / plain_name(output) if output else folders.work / "outputs"
            target = below / inside(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            at = f"/earlier/{quote(output, safe='') or '-'}/{quote(path)}"
            size = int(file["size_bytes"])
            retry(lambda: fetch(link, at, target, size), give_up)  # noqa: B023
    except Refused as refusal:
        error = refusal.body.get("error") or {}
        raise Failure(
            "earlier_outputs_missing",
            f"what the attempt before wrote could not be fetched: "
            f"{error.get('message') or refusal.status}",
            "submit the job again",
        ) from refusal
    return len(told["files"])
