"""Components of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.client import resources as read
from torchyard.client.assets import Asset, Assets, asset_fields
from torchyard.client.resources import Json

if TYPE_CHECKING:
    from torchyard.client.pipeline_steps import NewStep
    from torchyard.client.snapshots.upload import Progress


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Component(Asset):
    """One version of a step of pipelines; `raw` holds its whole document.

    Example::

        train = client.components.get("train")


        @pipeline
        def digits():
            train(lr=0.1)
    """

    display_name: str
    command: str

    def __call__(self, *args: Any, **inputs: Any) -> NewStep:
        """A step of the pipeline whose function is running."""
        from torchyard.client.pipeline_steps import add_step, of_component

        reference = f"azureml:{self.name}:{self.version}"
        return add_step(of_component(self.raw, reference, self.name), args, inputs)


class Components(Assets[Component]):
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
        *,
        file: Path | None = None,
    ) -> Component:
        """Register a version of `document["name"]`, the next one unless it names one.

        Args:
            document: name, command, environment and maybe code, inputs, outputs, or the `jobs` of
                a pipeline component; local paths in it are relative to `folder`.
            folder: the current one when None.
            progress: called as the code is uploaded.
            file: where the document stands; `train.additional_includes` beside `train.yml` lists
                what is put beside the code.

        Raises:
            InvalidSpec: the document is wrong.
            Conflict: the version it names exists with another content.
        """
        from torchyard.client.snapshots import job_files

        limits = self._snapshots.limits
        files = job_files.find(document, folder or Path.cwd(), limits, file)
        with files.locating(), files.with_code(limits) as ready:
            body = self._snapshots.send_job_files(ready, progress)
            return self._asset(self._transport.post(self._path, body))

    def _asset(self, raw: Json) -> Component:
        return Component(
            **asset_fields(raw),
            display_name=read.text(raw, "display_name"),
            command=read.text(raw, "command"),
        )
