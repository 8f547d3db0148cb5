"""What makes Azure's clients work inside a job as they do in Azure, with the job's own right.

Owns: the variables, the run token as a JWT, the file of certificates that they name.
Leaves: what the token may do to workspaces/, the listener to listening.py.
Always: the token is good for as long as the attempt, whatever date it bears: clients that insist
on a date get one that no attempt outlives.

Source: REST.md sections 2 and 8.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from torchyard.azureml.entry_routes import OpenTls, Way, variables
from torchyard.base import trust
from torchyard.base.errors import TorchyardError
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import Services
from torchyard.workspaces.jwts import Signer

_LOOPBACK = "127.0.0.1"
# Not the one of `yard client-env`, whose caller may trust others than the server does.
_FOLDER = "job-certificates"
_LIFE = timedelta(days=365)
_CLIENTS = ("azure_ai_ml", "azureml_core", "azureml_mlflow")
_log = logging.getLogger(__name__)


class Standing(Protocol):
    """The way in by TLS if it is open; None while nobody has wanted it."""

    def __call__(self) -> Way | None: ...


def open_door(
    services: Services,
    environ: Mapping[str, str],
    signer: Signer,
    standing: Standing,
    open_tls: OpenTls | None = None,
) -> None:
    """Give them to every job that is launched from now on, as soon as there is a way in.

    Args:
        environ: what jobs inherit; says which certificates are trusted already.
        open_tls: makes a way in, for the first job whose environment holds one of the clients.
    """

    def expect(environment: Path) -> None:
        if open_tls is None or standing() is not None or not _holds_client(environment):
            return
        try:
            open_tls("localhost")
        except (TorchyardError, OSError) as error:
            # The job runs all the same; its client says that it is offline.
            _log.warning("no way in by TLS for the clients of a job: %s", error)

    def of_job(job: Job, run_token: str) -> dict[str, str]:
        way = standing()
        if way is None:
            return {}
        base = f"https://{way.host or _LOOPBACK}:{way.port}"
        now = services.clock.now()
        ends_at = now + _LIFE
        signed = signer.sign(run_token, job.owner, base, now, ends_at)
        return {
            **variables(base),
            "IDENTITY_HEADER": run_token,
            "MSI_SECRET": run_token,
            **_certificates(services.home, environ, base, way.authority),
            "AZUREML_RUN_TOKEN": signed,
            "AZUREML_RUN_TOKEN_EXPIRY": str(int(ends_at.timestamp())),
            "AZUREML_SERVICE_ENDPOINT": base,
            "AZUREML_DISCOVERY_SERVICE_ENDPOINT": f"{base}/discovery",
            "AZUREML_RUN_HISTORY_SERVICE_ENDPOINT": base,
        }

    services.client_door.open(of_job, expect)


def _holds_client(environment: Path) -> bool:
    found = environment.glob("lib/python*/site-packages/*.dist-info")
    return any(one.name.partition("-")[0] in _CLIENTS for one in found)


def _certificates(
    home: Path, environ: Mapping[str, str], base: str, authority: str
) -> dict[str, str]:
    """None are named when the server's certificate is one that everybody trusts."""
    if not authority:
        return {}
    try:
        file = str(trust.bundle(home / _FOLDER, base, authority, environ))
    except TorchyardError:
        # A variable names certificates that can't be read: the job's own clients will tell.
        return {}
    return {"REQUESTS_CA_BUNDLE": file, "SSL_CERT_FILE": file}
