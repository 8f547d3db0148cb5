"""Components of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.client.assets import Assets
from torchyard.client.responses import Record

if TYPE_CHECKING:
    from torchyard.client.snapshots.upload import Progress


class Components(Assets):
    """Steps of pipelines.

    Example::

        step = {"name": "train", "command": "python train.py", "environment": "python@latest"}
        client.components.create({**step, "code": "./src"})
    """

    kind = "components"
    noun = "component"

    def create(
        self,
        document: Mapping[str, Any],
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Record:
        """Register a version of `document["name"]`, the next one unless it names one.

        Args:
            document: name, command, environment and maybe code, inputs, outputs; what it names
                on this machine is relative to `folder`.
            folder: the current one when None.
            progress: called as the code is uploaded.

        Raises:
            InvalidSpec: the document is wrong.
            Conflict: the version it names exists with another content.
        """
        from torchyard.client.snapshots import job_files

        limits = self._snapshots.limits
        files = job_files.find(document, folder or Path.cwd(), limits)
        with files.with_code(limits) as ready:
            asked = self._snapshots.send_job_files(ready, progress)
        return Record(self._transport.post(self._here, asked))
