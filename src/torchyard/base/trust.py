"""The certificate authorities that Azure's clients trust: a bundle below the home.

Owns: the new bundle's file.
Leaves: what is in it to shared/trusted_certificates.py, the variables that name it to
cli/commands/client_env.py and azureml/job_variables.py.
Always: the bundle holds all authorities of the old one and the server's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from torchyard.base import files
from torchyard.base.errors import InvalidInput
from torchyard.shared import trusted_certificates
from torchyard.shared.trusted_certificates import UnreadableCertificates

FOLDER = "client-env"


def file_name(url: str) -> str:
    """A server's name as part of a file's."""
    return re.sub(r"[^\w.-]", "_", url.partition("://")[2])


def bundle(home: Path, url: str, authority: str, environ: Mapping[str, str]) -> Path:
    """The file that trusts the server at `url`, written again when anything in it changed.

    Args:
        authority: PEM text of who signed the server's certificate.

    Raises:
        InvalidInput: a variable names certificates that can't be read.
    """
    file = home / FOLDER / f"{file_name(url)}.pem"
    try:
        content = trusted_certificates.bundle(url, authority, environ, _certifi())
    except UnreadableCertificates as error:
        hint = "unset the variable, or have it name a PEM file"
        raise InvalidInput(str(error), hint) from error
    try:
        if file.exists() and file.read_bytes() == content:
            return file
        files.make_private(file.parent)
        partial = file.with_name(f".{file.name}.{os.getpid()}")
        partial.write_bytes(content)
        os.replace(partial, file)
    except OSError as error:
        raise InvalidInput(
            f"`{file}` can't be written ({error.strerror})",
            "set TORCHYARD_HOME to a folder of your own",
        ) from error
    return file


def _certifi() -> Path | None:
    try:
        import certifi  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return Path(certifi.where())
