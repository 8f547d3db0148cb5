"""Look at what brings Azure ML's clients to this machine's server: its certificate, the variables.

Owns: the check.
Leaves: the other checks to checks.py, the certificate to base/certificates.py.
Always: nothing is made or renewed by looking.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from urllib.parse import urlsplit

from torchyard.base.settings import Settings
from torchyard.cli.doctor.findings import Finding

_VARIABLE = "ARM_CLOUD_METADATA_URL"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANEW = 'have your shell read them anew: eval "$(yard client-env)"'


def certificate(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Whether Azure ML's clients that this shell starts find the server, and trust it."""
    from torchyard.base import certificates

    if settings.url:
        return Finding("certificate", "ok", "the server is another machine's")
    if not certificates.is_made(settings.home):
        return Finding("certificate", "ok", "none is made yet; `yard client-env` makes one")
    port = _port(settings)
    led = urlsplit(environ.get(_VARIABLE, ""))
    if led.hostname in _LOOPBACK and port and led.port != port:
        what = f"this shell's variables lead to port {led.port}, the server has port {port}"
        return Finding("certificate", "note", what, _ANEW)
    kept = certificates.kept(settings.home)
    if kept is None:
        return Finding("certificate", "note", "it can't be read", "`yard client-env` makes another")
    what = f"good until {kept.ends_at:%Y-%m-%d} for port {port}"
    if kept.ends_at <= datetime.now(timezone.utc):
        what = f"ended on {kept.ends_at:%Y-%m-%d}"
        return Finding("certificate", "note", what, "the server renews it: `yard server start`")
    return Finding("certificate", "ok", what)


def _port(settings: Settings) -> int:
    try:
        return int((settings.home / "tls-port").read_text())
    except (OSError, ValueError):
        return 0
