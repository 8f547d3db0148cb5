"""Look at the server that commands would go to, and at the clocks of both sides.

Owns: the two checks.
Leaves: this machine to machine_check.py, its programs to programs_check.py.
Always: no server is started by looking.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from torchyard.base.errors import TorchyardError
from torchyard.base.http import Transport
from torchyard.base.settings import Settings
from torchyard.cli.doctor.findings import PATIENCE_S, Finding, ok
from torchyard.client import embedded

_CLOCK_S = 5.0


def server(settings: Settings) -> Finding:
    running = None if settings.url else embedded.find(settings)
    url = settings.url or (running.url if running else "")
    if not url:
        return ok("server", "none runs; the first command that needs one starts it")
    try:
        health = _health(url)
    except TorchyardError as error:
        remedy = "see `yard server logs`, then `yard server stop` and try again"
        if settings.url:
            remedy = "check TORCHYARD_URL, and that the server runs"
        return Finding("server", "wrong", error.message, remedy)
    from torchyard import __version__

    what = f"{health.get('version')} at {url}"
    if health.get("version") != __version__:
        return Finding(
            "server",
            "note",
            f"{what}; this command is {__version__}",
            "`yard server stop`: the next command starts one of its own version"
            if not settings.url
            else "install the server's version here",
        )
    return ok("server", what)


def clock(settings: Settings) -> Finding:
    """A clock that is far off makes certificates and times of metrics wrong."""
    now = time.time()
    if not 1_735_689_600 < now < 4_102_444_800:
        stamp = time.strftime("%Y-%m-%d", time.gmtime(now))
        return Finding("clock", "wrong", f"it says {stamp}", "set it, best by NTP")
    if settings.url:
        transport = Transport(settings.url, "", timeout_s=PATIENCE_S, ca_cert=settings.ca_cert)
        try:
            with transport.stream("/health") as answer:
                date = answer.headers.get("Date")
        except TorchyardError:
            date = None
        finally:
            transport.close()
        if date:
            off_s = time.time() - parsedate_to_datetime(date).timestamp()
            if abs(off_s) > _CLOCK_S:
                what = f"{abs(off_s):.0f} s {'before' if off_s > 0 else 'behind'} the server's"
                return Finding("clock", "note", what, "set both by NTP")
    return ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %Z"))


def _health(url: str) -> dict[str, str]:
    transport = Transport(url, "", timeout_s=PATIENCE_S)
    try:
        health: dict[str, str] = transport.get("/health")
        return health
    finally:
        transport.close()
