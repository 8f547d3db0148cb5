"""What makes Azure's clients work inside a job as they do in Azure, with the job's own permissions.

Owns: the variables, the run token as a JWT, the file of certificates that they name, which jobs
get Azure's address for MLflow.
Leaves: what the token permits to workspaces/, the listener to app/listeners.py; on nodes of other
machines, the address and the file to worker/node/client_gate.py.
Always: the token is valid as long as the attempt, whatever its expiry date: clients that require
a date get one that no attempt outlives.

Source: REST.md sections 2 and 8.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from torchyard.azureml.common.calls import resource_id, tracking_uri
from torchyard.azureml.common.context import OpenTls, TlsEndpoint
from torchyard.azureml.entry_routes import variables
from torchyard.base import trust
from torchyard.base.errors import TorchyardError
from torchyard.base.home.node_folder import NodeFolder
from torchyard.executors import server_for_nodes
from torchyard.jobs.records.client_endpoints import NodeEndpoints
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices, Services
from torchyard.shared.plan import GATE_HOST, GatePlan
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.jwts import Signer

_LOOPBACK = "127.0.0.1"
# Not the folder of `yard client-env`: that caller may trust other certificates than the server.
_FOLDER = "job-certificates"
_LIFETIME = timedelta(days=365)
_PLUGIN = "azureml_mlflow"
_CLIENTS = ("azure_ai_ml", "azureml_core", _PLUGIN)
# The version from which the plug-in takes the job's credentials from its variables; one before it
# opens a browser unless its address says that it is in a job.
_READS_VARIABLES = [1, 28]
_IN_A_JOB = "?is-remote=True"
_log = logging.getLogger(__name__)


class OpenedTls(Protocol):
    """The TLS endpoint if it is open; None as long as nobody has needed it."""

    def __call__(self) -> TlsEndpoint | None: ...


class JobVariables:
    """The variables of every job, as soon as there is a TLS endpoint.

    Args:
        environ: what jobs inherit; names the certificates that are trusted already.
        open_tls: opens the endpoint, for the first job whose environment has one of the clients.
    """

    def __init__(
        self,
        services: FileServices,
        environ: Mapping[str, str],
        signer: Signer,
        opened_tls: OpenedTls,
        open_tls: OpenTls | None = None,
    ) -> None:
        self._services = services
        self._environ = environ
        self._signer = signer
        self._opened_tls = opened_tls
        self._open_tls = open_tls

    def expect(self, environment: Path) -> None:
        """Open the endpoint if a job's environment has one of the clients."""
        if self._open_tls is None or self._opened_tls() is not None:
            return
        if not _versions(environment, _CLIENTS):
            return
        try:
            self._open_tls("localhost")
        except (TorchyardError, OSError) as error:
            # The job runs nevertheless; its client reports that it is offline.
            _log.warning("no TLS endpoint for the clients of a job: %s", error)

    def of_job(self, job: Job, run_token: str, environment: Path | None) -> dict[str, str]:
        """For nodes on this machine."""
        endpoint = self._opened_tls()
        if endpoint is None:
            return {}
        base = f"https://{endpoint.host or _LOOPBACK}:{endpoint.port}"
        return {
            **self._of_base(job, run_token, environment, base),
            **_certificates(self._services.node, self._environ, base, endpoint.authority),
        }

    def of_node(
        self, job: Job, run_token: str, environment: Path | None, urls: Sequence[str]
    ) -> NodeEndpoints:
        """For nodes of other machines, which find the server at `urls`.

        Its own certificate is good for loopback, so clients reach it by the worker's gate, whatever
        its address is. A configured one is not: they use the first address that has TLS, whose name
        is the certificate's.
        """
        endpoint = self._opened_tls()
        if endpoint is None:
            return NodeEndpoints()
        if not endpoint.authority:
            name = f"https://{endpoint.host or _LOOPBACK}:{endpoint.port}"
            base = next((url for url in urls if url.startswith("https://")), name)
            return NodeEndpoints(self._of_base(job, run_token, environment, base))
        gate = GatePlan([_with_tls(url, endpoint.port) for url in urls], endpoint.authority)
        base = f"https://{GATE_HOST}"
        return NodeEndpoints(self._of_base(job, run_token, environment, base), gate)

    def _of_base(
        self, job: Job, run_token: str, environment: Path | None, base: str
    ) -> dict[str, str]:
        now = self._services.clock.now()
        ends_at = now + _LIFETIME
        signed = self._signer.sign(run_token, job.owner, base, now, ends_at)
        return {
            **variables(base),
            "IDENTITY_HEADER": run_token,
            "MSI_SECRET": run_token,
            "AZUREML_RUN_TOKEN": signed,
            "AZUREML_RUN_TOKEN_EXPIRY": str(int(ends_at.timestamp())),
            "AZUREML_SERVICE_ENDPOINT": base,
            "AZUREML_DISCOVERY_SERVICE_ENDPOINT": f"{base}/discovery",
            "AZUREML_RUN_HISTORY_SERVICE_ENDPOINT": base,
            **self._tracking(job, base, environment),
        }

    def _tracking(self, job: Job, base: str, environment: Path | None) -> dict[str, str]:
        """Azure's address for MLflow, which only the plug-in reads; the others log to the relay."""
        versions = [] if environment is None else _versions(environment, [_PLUGIN])
        if not versions:
            return {}
        workspace = workspaces.get(self._services.db, job.workspace)
        uri = tracking_uri(base, resource_id(workspace))
        is_early = (_numbers(versions[0]) or _READS_VARIABLES) < _READS_VARIABLES
        return {
            "MLFLOW_TRACKING_URI": uri + _IN_A_JOB if is_early else uri,
            # Otherwise it reads a list of addresses in the home folder, maybe of another server.
            "AZUREML_DEV_URL_MLFLOW": base,
        }


def publish(
    services: Services,
    environ: Mapping[str, str],
    signer: Signer,
    opened_tls: OpenedTls,
    open_tls: OpenTls | None = None,
) -> None:
    """Give the variables to every job that is launched from now on."""
    job_variables = JobVariables(services, environ, signer, opened_tls, open_tls)
    services.client_endpoints.open(
        job_variables.of_job, job_variables.of_node, job_variables.expect
    )


def _with_tls(url: str, port: int) -> str:
    """The address of the TLS listener beside the plain one at `url`."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return url
    return server_for_nodes.url_of("https", parts.hostname or _LOOPBACK, port)


def _versions(environment: Path, names: Collection[str]) -> list[str]:
    """The versions of those of the packages that are there."""
    folders = environment.glob("lib/python*/site-packages/*.dist-info")
    parts = [folder.name.removesuffix(".dist-info").partition("-") for folder in folders]
    return [version for name, _, version in parts if name in names]


def _numbers(version: str) -> list[int]:
    """The first two of a version."""
    return [int(number) for number in version.split(".")[:2] if number.isdigit()]


def _certificates(
    node: NodeFolder, environ: Mapping[str, str], base: str, authority: str
) -> dict[str, str]:
    """Empty when everybody trusts the server's certificate."""
    if not authority:
        return {}
    try:
        bundle = trust.bundle(node.public / _FOLDER, base, authority, environ)
        if node.is_separate:
            bundle.chmod(0o644)
            for folder in (bundle.parent, node.public / _FOLDER):
                folder.chmod(0o755)
        file = str(bundle)
    except TorchyardError:
        # A variable names certificates that can't be read: the job's own clients report it.
        return {}
    return {"REQUESTS_CA_BUNDLE": file, "SSL_CERT_FILE": file}
