"""A server's certificate, got from the server itself and known by its fingerprint.

Owns: asking for it, comparing it.
Leaves: where a fingerprint comes from to who has it, trusting the certificate to http.py.
Always: nothing but the question is sent before it is compared, and no token.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from torchyard.base.errors import InvalidInput, Unreachable
from torchyard.base.files import write_atomically

_LIMIT_S = 30.0
_LIMIT_BYTES = 1 << 16
_FILE = "trusted-server.pem"
_PATH = "/v1/server/certificate"


def fingerprint(certificate: str) -> str:
    """What tells this certificate from every other: `sha256:` and 64 digits.

    Raises:
        ValueError: it is not one of PEM.
    """
    content = ssl.PEM_cert_to_DER_cert(certificate)
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def trust(folder: Path, url: str, expected: str) -> str:
    """A file in `folder` with the certificate that `fetch` finds."""
    certificate = fetch(url, expected)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / _FILE
    with write_atomically(file, mode=0o600) as writing:
        writing.write(certificate.encode())
    return str(file)


def fetch(url: str, expected: str) -> str:
    """The certificate (PEM) with the fingerprint `expected`.

    Raises:
        InvalidInput: `expected` is not a fingerprint, or the URL is not one with TLS.
        Unreachable: nothing answers there, or something else.
    """
    digits = expected.lower().removeprefix("sha256:").replace(":", "")
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise InvalidInput(
            f"`{expected[:80]}` is not a fingerprint",
            "write `sha256:` and 64 digits, as `yard node invite` prints them",
        )
    parts = urlsplit(url)
    if parts.scheme != "https":
        raise InvalidInput(
            f"`{url}` has no certificate that a fingerprint could name", "write `https://…`"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the fingerprint is what is verified
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port or 443, timeout=_LIMIT_S, context=context
    )
    try:
        connection.request("GET", _PATH)
        answer = json.loads(connection.getresponse().read(_LIMIT_BYTES))
        certificate = str(answer["certificate"])
        found = fingerprint(certificate)
    except (http.client.HTTPException, OSError) as error:
        raise Unreachable(
            f"no torchyard server answers at `{url}` ({error or type(error).__name__})",
            "check the address and the port, and that no firewall is in between: "
            f"`curl -k {url}/livez` tries it",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(
            f"what answers at `{url}` shows no certificate of a torchyard server",
            "check the address",
            code="foreign_server",
        ) from error
    finally:
        connection.close()
    if found != f"sha256:{digits}":
        raise Unreachable(
            f"the certificate of `{url}` has another fingerprint: {found}",
            "another server, or somebody in between, answers there: compare it with "
            "`yard node invite` on the server's machine",
            code="untrusted",
        )
    return certificate
