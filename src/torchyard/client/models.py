"""Registered models of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.client.assets import Assets
from torchyard.client.responses import Record


class Models(Assets):
    """Registered models.

    Example::

        path = f"azureml://jobs/{job.name}/outputs/artifacts/paths/outputs/model.pt"
        client.models.create({"name": "digits", "path": path})
    """

    kind = "models"
    noun = "model"

    def update(self, name: str, version: str, changes: Mapping[str, Any]) -> Record:
        """Change a version's `description`, `tags` (merged) or `properties` (merged)."""
        return Record(self._transport.call("PATCH", self._of(name, version), dict(changes)))
