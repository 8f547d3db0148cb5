"""All checks of `yard doctor`, in order.

Owns: the list of checks; what happens if a check crashes.
Leaves: each check to programs_check.py, machine_check.py, server_check.py and certificate_check.py,
printing to command.py.
Always: a check that crashes becomes a note and doesn't affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchyard.base.settings import Settings
from torchyard.cli.doctor import certificate_check, machine_check, programs_check, server_check
from torchyard.cli.doctor.findings import Finding


def all_of(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """
    Args:
        environ: the shell's variables.
    """
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", programs_check.python),
        ("uv", programs_check.uv),
        ("home", lambda: machine_check.home(settings.home)),
        ("disk", lambda: machine_check.disk(settings.home)),
        ("links", lambda: machine_check.links(settings.home)),
        ("memory", machine_check.memory),
        ("ports", machine_check.ports),
        ("gpu", machine_check.gpu),
        ("namespaces", machine_check.namespaces),
        ("packages", programs_check.packages),
        ("containers", programs_check.containers),
        ("mpi", programs_check.mpi),
        ("git", programs_check.git),
        ("server", lambda: server_check.server(settings)),
        ("limits", lambda: server_check.limits(settings)),
        ("job users", lambda: server_check.job_users(settings)),
        ("clock", lambda: server_check.clock(settings)),
        ("certificate", lambda: certificate_check.certificate(settings, environ)),
    ]
    return [_guarded(name, check) for name, check in checks]


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        message = f"the check crashed ({type(error).__name__}: {error})"
        return Finding(name, "note", message, "please report it: this is a bug in torchyard")
