"""What the SDK says of an exported image, and where one is to be pushed.

Owns: the public types of `client.environments.export_image`.
Leaves: making the image to image_export.py, finding credentials to credentials.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.client.images import credentials
from torchyard.client.images.credentials import Credentials
from torchyard.client.images.registry_connection import Access
from torchyard.client.resources import Resource


@dataclass(frozen=True)
class PushTarget:
    """An image's name in a registry, and how that may be reached.

    Args:
        image: `REGISTRY/NAME[:TAG]`; the environment's version is the default tag.
        username: with `password`, whom to be; docker's and podman's logins otherwise.
        token_host: a token service of another owner that may see the password.
        plain_http: allow a registry without TLS; on this machine one is always allowed.
        ca_cert: a PEM file of certificates that are trusted beside the system's own.
    """

    image: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_host: str = ""
    plain_http: bool = False
    ca_cert: Path | str = ""

    def access(self, registry: str, variables: Mapping[str, str]) -> Access:
        """
        Args:
            variables: the process environment.
        """
        login = Credentials(self.username, self.password) if self.username else None
        return Access(
            login or credentials.find(registry, variables),
            self.token_host,
            self.plain_http,
            str(self.ca_cert),
            variables,
        )


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
