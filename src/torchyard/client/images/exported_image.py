"""What the SDK says of an exported image.

Owns: the public type of `client.environments.export_image`.
Leaves: making the image to image_export.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.client.resources import Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExportedImage(Resource):
    """An OCI image of an environment.

    Args:
        name: what podman calls it once it is loaded, as `localhost/vision:3`.
        path: the file or folder; None if it was only pushed.
        digest: of its manifest, `sha256:…`: the same for the same environment.
        size_bytes: of its layers, compressed.
        pushed: where it was pushed, as `registry.example.com/team/vision:3`; may be empty.
    """

    name: str
    path: Path | None
    digest: str
    size_bytes: int
    labels: Mapping[str, str]
    pushed: str

    _shown = ("name", "path", "digest", "pushed")
