"""Check what Azure ML's clients need to reach this machine's server: certificate and variables.

Owns: the check.
Leaves: the other checks to checks.py, the certificate to base/certificates.py.
Always: the check creates and renews nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from urllib.parse import urlsplit

from torchyard.base.settings import Settings
from torchyard.cli.doctor.findings import Finding

_VARIABLE = "ARM_CLOUD_METADATA_URL"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_RELOAD = 'load them again: eval "$(yard client-env)"'


def certificate(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Whether Azure ML's clients started from this shell find the server and trust it."""
    from torchyard.base import certificates

    if settings.url:
        return Finding("certificate", "ok", "the server is on another machine")
    if not certificates.is_made(settings.home):
        return Finding("certificate", "ok", "not created yet; `yard client-env` creates one")
    port = settings.tls_port
    pointed = urlsplit(environ.get(_VARIABLE, ""))
    if pointed.hostname in _LOOPBACK and port and pointed.port != port:
        state = (
            f"this shell's variables point to port {pointed.port}, but the server uses port {port}"
        )
        return Finding("certificate", "note", state, _RELOAD)
    stored_certificate = certificates.read_stored(settings.home)
    if stored_certificate is None:
        return Finding(
            "certificate", "note", "it can't be read", "`yard client-env` creates another"
        )
    state = f"valid until {stored_certificate.ends_at:%Y-%m-%d} for port {port}"
    if stored_certificate.ends_at <= datetime.now(timezone.utc):
        state = f"expired on {stored_certificate.ends_at:%Y-%m-%d}"
        return Finding("certificate", "note", state, "the server renews it: `yard server start`")
    return Finding("certificate", "ok", state)
