"""Restore the outputs of previous attempts, and of other jobs, before the ranks start.

Owns: downloading `./outputs` and the named outputs as the server has them.
Leaves: which files those are to the server.
Always: a script that is retried finds its files where it wrote them; every node gets all of them,
and none delivers a file again that it has not changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry
from torchyard.worker.files.blobs import relative_path
from torchyard.worker.files.inputs import checked_name
from torchyard.worker.files.node_folders import NodeFolders, file_mark
from torchyard.worker.files.remote_inputs import fetch_file


def fetch_previous_outputs(
    link: Connection, folders: NodeFolders, give_up: Callable[[], bool]
) -> None:
    """Write the files below `./outputs` and the folders of the named outputs.

    Raises:
        Failure: the server refuses a file.
        OSError: the server is unreachable and `give_up` returned True.
    """
    try:
        listing = retry(lambda: link.call("GET", "/previous-outputs"), give_up)
        fetched: dict[str, list[int]] = {}
        for file in listing["files"]:
            output, path = str(file["output"]), str(file["path"])
            folder = folders.outputs / checked_name(output) if output else folders.work / "outputs"
            target = folder / relative_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            url_path = f"/previous-outputs/{quote(output, safe='') or '-'}/{quote(path)}"
            size = int(file["size_bytes"])
            retry(lambda: fetch_file(link, url_path, target, size), give_up)  # noqa: B023
            fetched[str(target)] = file_mark(target)
        folders.fetched_outputs.write_text(json.dumps(fetched))
    except Refused as refusal:
        error = refusal.body.get("error") or {}
        raise Failure(
            "previous_outputs_missing",
            f"the outputs of the previous attempt could not be fetched: "
            f"{error.get('message') or refusal.status}",
            "submit the job again",
        ) from refusal
