"""The certificates that programs of this machine trust, and a server's beside them.

Owns: finding the bundle that is used already, the content of a new one.
Leaves: where it is written, and the variables that name it, to the callers.
Always: standard library only, Python 3.9 and later; a bundle holds all authorities of the old one
and the server's; its first line names the old one, so that a new bundle is made from that, not
from itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Optional

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


class UnreadableCertificates(Exception):
    """What names certificates names something else."""


def bundle(
    url: str, authority: str, environ: Mapping[str, str], preferred: Optional[Path] = None
) -> bytes:
    """What trusts the server at `url` and all that was trusted before, as PEM.

    Args:
        authority: PEM text of who signed the server's certificate.
        preferred: a bundle, such as certifi's, that counts unless a variable names another.

    Raises:
        UnreadableCertificates: a variable names certificates that can't be read.
    """
    source, trusted = _trusted(environ, preferred)
    content = f"{_MADE_OF}{source}\n".encode() + trusted.strip() + b"\n"
    return content + f"# {url}\n{authority.strip()}\n".encode()


def _trusted(environ: Mapping[str, str], preferred: Optional[Path]) -> tuple[str, bytes]:
    """Where it was found and what is trusted, as PEM."""
    for name in _VARIABLES:
        path = _source_of_bundle(Path(environ[name])) if environ.get(name) else None
        if path is not None:
            return str(path), _read(path, name)
    file = preferred or next((path for path in map(Path, _SYSTEMS) if path.is_file()), None)
    if file is not None:
        return str(file), _read(file, "the system")
    import ssl  # Takes 10 ms, and is rarely needed.

    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "the system", "".join(map(ssl.DER_cert_to_PEM_cert, certificates)).encode()


def _source_of_bundle(path: Path) -> Optional[Path]:
    """What a variable names; of a bundle of ours, what it was made of, None where that is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as opened:
            line = opened.readline()
    except OSError:
        return path  # a folder, or what `_read` will complain about
    if not line.startswith(_MADE_OF):
        return path
    source = Path(line[len(_MADE_OF) :].strip())
    return source if source.is_absolute() and source.exists() else None


def _read(path: Path, said_by: str) -> bytes:
    """Of a folder, every certificate in it."""
    try:
        if not path.is_dir():
            content = path.read_bytes()
        else:
            files = {file.resolve() for file in path.iterdir() if file.is_file()}
            texts = [file.read_bytes() for file in sorted(files)]
            content = b"\n".join(text for text in texts if _BEGIN in text)
    except OSError as error:
        raise UnreadableCertificates(
            f"`{path}`, which {said_by} names, can't be read ({error.strerror})"
        ) from error
    if _BEGIN not in content:
        raise UnreadableCertificates(f"`{path}`, which {said_by} names, holds no certificates")
    return content
