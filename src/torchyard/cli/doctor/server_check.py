"""Check the server that commands use, which limits it holds, and the clocks of both sides.

Owns: the checks; what the server says of its jobs' Unix users.
Leaves: this machine to machine_check.py, its programs to programs_check.py.
Always: the checks start no server.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from torchyard.base.errors import TorchyardError
from torchyard.base.http import Transport
from torchyard.base.settings import Settings
from torchyard.cli.doctor.findings import TIMEOUT_S, Finding, ok
from torchyard.client import embedded

_CLOCK_S = 5.0
_LIMITS = {"cpu": "CPU", "memory": "memory", "pids": "processes", "network": "network"}


def server(settings: Settings) -> Finding:
    running = None if settings.url else embedded.find(settings)
    url = settings.url or (running.url if running else "")
    if not url:
        return ok("server", "not running; the first command that needs it starts it")
    try:
        health = _health(url)
    except TorchyardError as error:
        remedy = "see `yard server logs`, then `yard server stop` and try again"
        if settings.url:
            remedy = "check TORCHYARD_URL, and that the server is running"
        return Finding("server", "wrong", error.message, remedy)
    from torchyard import __version__

    description = f"{health.get('version')} at {url}"
    if health.get("version") != __version__:
        return Finding(
            "server",
            "note",
            f"{description}; this command is {__version__}",
            "`yard server stop`: the next command starts a server of its own version"
            if not settings.url
            else "install the server's version here",
        )
    return ok("server", description)


def limits(settings: Settings) -> Finding:
    """Which limits of jobs the server's machine holds; what does not hold is not pretended."""
    running = None if settings.url else embedded.find(settings)
    url = settings.url or (running.url if running else "")
    if not url:
        return ok("limits", "not checked: no server is running")
    token = settings.token if settings.url else embedded.token(settings)
    transport = Transport(url, token, timeout_s=TIMEOUT_S, ca_cert=settings.ca_cert)
    try:
        holds = transport.get("/v1/server/limits")
    except TorchyardError as error:
        return Finding("limits", "note", f"not checked: {error.message}", error.hint)
    finally:
        transport.close()
    enforced = [words for key, words in _LIMITS.items() if holds.get(key)]
    missing = [words for key, words in _LIMITS.items() if not holds.get(key)]
    description = f"held for jobs: {', '.join([*enforced, 'open files', 'disk (watched)'])}"
    if not missing:
        return ok("limits", description)
    shared = "" if holds.get("pids") else "; processes are counted for all jobs of a user together"
    return Finding(
        "limits",
        "note",
        f"{description}; not held: {', '.join(missing)}{shared}",
        "run the server by its systemd unit, which has `Delegate=` (systemd 254 or later), or as "
        "root where cgroups can be written; for the network allow user namespaces",
    )


def clock(settings: Settings) -> Finding:
    """A wrong clock makes certificates invalid and the times of metrics wrong."""
    now = time.time()
    if not 1_735_689_600 < now < 4_102_444_800:
        stamp = time.strftime("%Y-%m-%d", time.gmtime(now))
        return Finding("clock", "wrong", f"it shows {stamp}", "set it, preferably with NTP")
    if settings.url:
        transport = Transport(settings.url, "", timeout_s=TIMEOUT_S, ca_cert=settings.ca_cert)
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
                description = (
                    f"{abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} the server's"
                )
                return Finding("clock", "note", description, "set both with NTP")
    return ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %Z"))


def job_users(settings: Settings) -> Finding:
    """Whether a job on a server for several people could become the server."""
    if settings.url:
        transport = Transport(settings.url, settings.token, TIMEOUT_S, ca_cert=settings.ca_cert)
        try:
            as_server = bool(transport.get("/v1/whoami").get("jobs_as_server_user"))
        except TorchyardError:
            return ok("job users", "unknown: the server does not say without a login")
        finally:
            transport.close()
    else:
        as_server = (settings.home / "jobs-as-server-user").exists()
        if not as_server:
            return ok("job users", "jobs run as you, or as their people's own users by a runner")
    if not as_server:
        return ok("job users", "each person's jobs run as a Unix user of that person's own")
    return Finding(
        "job users",
        "note",
        "jobs run as the server's Unix user: anyone who may submit one can read and change all "
        "that the server can, such as its keys, tokens, database and everybody's files",
        "install the runner, as docs/guides/runner.md says",
    )


def _health(url: str) -> dict[str, str]:
    transport = Transport(url, "", timeout_s=TIMEOUT_S)
    try:
        health: dict[str, str] = transport.get("/health")
        return health
    finally:
        transport.close()
