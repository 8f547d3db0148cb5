"""Push an OCI image layout to a registry, by skopeo.

Owns: the image's name in the registry, the command, what its failure says.
Leaves: logins, certificates and the protocol to skopeo; the layout to layout.py.
Always: skopeo is there before anything is built or read.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from torchyard.base.addresses import is_loopback
from torchyard.base.errors import InvalidInput, TorchyardError

_REFERENCE = re.compile(
    r"(?P<registry>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?)/"
    r"(?P<name>[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?",
    re.ASCII,
)


class UploadFailed(TorchyardError):
    """The registry did not take the image."""

    code = "upload_failed"
    exit_code = 1


@dataclass(frozen=True)
class Reference:
    """`registry` is a host, maybe with a port."""

    registry: str
    name: str
    tag: str

    def with_tag(self, tag: str) -> Reference:
        """With this tag unless it has one."""
        return replace(self, tag=self.tag or tag)

    @property
    def is_of_this_machine(self) -> bool:
        return is_loopback(urlsplit(f"//{self.registry}").hostname or "")

    def __str__(self) -> str:
        return f"{self.registry}/{self.name}:{self.tag}"


def parse(text: str) -> Reference:
    """The tag is empty where the text has none.

    Raises:
        InvalidInput: it is not `REGISTRY/NAME[:TAG]`.
    """
    match = _REFERENCE.fullmatch(text)
    registry = match["registry"] if match else ""
    if match is None or not ("." in registry or ":" in registry or registry == "localhost"):
        raise InvalidInput(
            f"`{text}` is not a place in a registry",
            "write `REGISTRY/NAME:TAG` in lower case, as `registry.example.com/team/vision:3`",
        )
    return Reference(registry, match["name"], match["tag"] or "")


def skopeo() -> str:
    """The program's path.

    Raises:
        InvalidInput: it is not on this machine.
    """
    program = shutil.which("skopeo")
    if program is None:
        raise InvalidInput(
            "`skopeo`, which pushes images, is not on this machine",
            "install it (`apt-get install skopeo`, `brew install skopeo`); or write the image "
            "with `--image FILE.tar`, and type `skopeo copy oci-archive:FILE.tar "
            "docker://REGISTRY/NAME:TAG` where it is",
        )
    return program


def run(layout: Path, to: Reference, plain_http: bool) -> None:
    """Copy a layout, a folder or a `.tar` file, to the registry; its digest stays.

    Args:
        plain_http: allow a registry without TLS; on this machine one is always allowed.

    Raises:
        UploadFailed: with what skopeo said.
    """
    kind = "oci-archive" if layout.suffix == ".tar" else "oci"
    without_tls = plain_http or to.is_of_this_machine
    words = [skopeo(), "copy", "--quiet", "--preserve-digests"]
    words += ["--dest-tls-verify=false"] if without_tls else []
    copied = subprocess.run(
        [*words, f"{kind}:{layout}", f"docker://{to}"], stderr=subprocess.PIPE, text=True
    )
    if copied.returncode:
        lines = copied.stderr.strip().splitlines() or [f"skopeo ended with {copied.returncode}"]
        # `time="…" level=fatal msg="…"`
        message = lines[-1].partition(' msg="')[2].removesuffix('"') or lines[-1]
        message = message.replace('\\"', '"')
        raise UploadFailed(
            f"`{to.registry}` does not have the image: {message[:600]}",
            f"log in with `skopeo login {to.registry}`; `--plain-http` allows a registry without "
            "TLS",
        )
