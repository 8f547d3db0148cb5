"""The certificate authorities that Azure's clients trust: a bundle below the home.

Owns: finding the bundle that this machine already uses, the new bundle's file.
Leaves: the variables that name it to cli/commands/client_env.py and azureml/job_variables.py.
Always: the bundle holds all authorities of the old one and the server's; its first line names the
old one, so that a new bundle is made from that, not from itself.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

from torchyard.base.errors import InvalidInput

FOLDER = "client-env"
# What requests, OpenSSL and curl read, in the order in which requests looks at them.
_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_SYSTEMS = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)
_MADE_OF = "# torchyard: made by `yard client-env` of "
_BEGIN = b"-----BEGIN CERTIFICATE-----"


def file_name(url: str) -> str:
    """A server's name as part of a file's."""
    return re.sub(r"[^\w.-]", "_", url.partition("://")[2])


def bundle(home: Path, url: str, authority: str, environ: Mapping[str, str]) -> Path:
    """The file that trusts the server at `url`, written anew when anything in it changed.

    Args:
        authority: PEM text of who signed the server's certificate.

    Raises:
        InvalidInput: a variable names certificates that can't be read.
    """
    file = home / FOLDER / f"{file_name(url)}.pem"
    source, trusted = _trusted(environ)
    content = f"{_MADE_OF}{source}\n".encode() + trusted.strip() + b"\n"
    content += f"# {url}\n{authority.strip()}\n".encode()
    try:
        if file.exists() and file.read_bytes() == content:
            return file
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = file.with_name(f".{file.name}.{os.getpid()}")
        partial.write_bytes(content)
        os.replace(partial, file)
    except OSError as error:
        raise InvalidInput(
            f"`{file}` can't be written ({error.strerror})",
            "set TORCHYARD_HOME to a folder of your own",
        ) from error
    return file


def _trusted(environ: Mapping[str, str]) -> tuple[str, bytes]:
    """Where it was found and what is trusted, as PEM."""
    for name in _VARIABLES:
        path = _named(Path(environ[name])) if environ.get(name) else None
        if path is not None:
            return str(path), _read(path, name)
    bundle = _certifi() or next((path for path in map(Path, _SYSTEMS) if path.is_file()), None)
    if bundle is not None:
        return str(bundle), _read(bundle, "the system")
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "the system", "".join(map(ssl.DER_cert_to_PEM_cert, certificates)).encode()


def _named(path: Path) -> Path | None:
    """What a variable names; of a bundle of ours, what it was made of, None where that is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as opened:
            line = opened.readline()
    except OSError:
        return path  # a folder, or what `_read` will complain about
    if not line.startswith(_MADE_OF):
        return path
    source = Path(line.removeprefix(_MADE_OF).strip())
    return source if source.is_absolute() and source.exists() else None


def _certifi() -> Path | None:
    try:
        import certifi  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return Path(certifi.where())


def _read(path: Path, said_by: str) -> bytes:
    """Of a folder, every certificate in it."""
    try:
        if not path.is_dir():
            content = path.read_bytes()
        else:
            files = {file.resolve() for file in path.iterdir() if file.is_file()}
            content = b"\n".join(text for text in _texts(files) if _BEGIN in text)
    except OSError as error:
        raise InvalidInput(
            f"`{path}`, which {said_by} names, can't be read ({error.strerror})",
            "unset the variable, or have it name a PEM file",
        ) from error
    if _BEGIN not in content:
        raise InvalidInput(
            f"`{path}`, which {said_by} names, holds no certificates",
            "unset the variable, or have it name a PEM file",
        )
    return content


def _texts(files: set[Path]) -> list[bytes]:
    return [file.read_bytes() for file in sorted(files)]
