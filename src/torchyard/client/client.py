"""`Client`: one workspace of one server, and its nouns.

Owns: the arguments of `Client`.
Leaves: what they default to to connection.py, each noun to its module.
Always: a noun's module is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import quote

from torchyard.base import settings as base_settings
from torchyard.base.http import Transport
from torchyard.base.settings import Settings
from torchyard.client import connection

if TYPE_CHECKING:
    from torchyard.client.batch_endpoints.deployments import BatchDeployments
    from torchyard.client.batch_endpoints.endpoints import BatchEndpoints
    from torchyard.client.components import Components
    from torchyard.client.computes import Computes
    from torchyard.client.data import Data
    from torchyard.client.datastores import Datastores
    from torchyard.client.endpoints.online_deployments import OnlineDeployments
    from torchyard.client.endpoints.online_endpoints import OnlineEndpoints
    from torchyard.client.environments import Environments
    from torchyard.client.experiments import Experiments
    from torchyard.client.interactive.instances import Instances
    from torchyard.client.jobs import Jobs
    from torchyard.client.lineage import Lineages
    from torchyard.client.models import Models
    from torchyard.client.pipelines.pipelines import Pipelines
    from torchyard.client.quotas import Quotas
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.sweeps.sweeps import Sweeps
    from torchyard.client.users import Users
    from torchyard.client.workspaces import Workspaces


class Client:
    """One workspace of a torchyard server. Not for use by several threads at once.

    Without arguments it is the server that `yard` uses: TORCHYARD_URL's, else the one logged in
    to, else this machine's own, which is started when none runs.

    Args:
        url: the server, as `https://host:8766`.
        token: begins with `yard_p_`; `yard login`'s or TORCHYARD_TOKEN when left out.
        workspace: TORCHYARD_WORKSPACE, the nearest `config.json`'s, that of
            `yard configure`, or `default` when left out.
        start: start this machine's server when it is meant and none runs.
        on_start: called before a server is started, which takes a second.
        settings: what stands for the environment; read from it when None.
        transport: a connection to use instead of one to `url`.

    Raises:
        InvalidInput: `url` is not a server's address.
        NotAuthenticated: there is no token for `url`.
        Unreachable: no server answers; with `start=False`: none runs on this machine.

    Example::

        from torchyard import Client, command

        client = Client()
        job = client.jobs.create(command(command="python train.py", code=".", environment="python"))
        job.stream()
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
        start: bool = True,
        on_start: Callable[[], None] | None = None,
        settings: Settings | None = None,
        transport: Transport | None = None,
    ) -> None:
        settings = settings or base_settings.read()
        self._settings = base_settings.with_server(settings, url or "", token or "")
        self.workspace = workspace or connection.default_workspace(self._settings, Path.cwd())
        self.transport = transport or connection.connect(self._settings, start, on_start)
        self._path = f"/v1/workspaces/{quote(self.workspace, safe='')}"

    @cached_property
    def jobs(self) -> Jobs:
        """Submit, follow, search and delete jobs; read their logs, metrics and files."""
        from torchyard.client.jobs import Jobs

        return Jobs(self.transport, self._path, self.snapshots)

    @cached_property
    def snapshots(self) -> Snapshots:
        """Folders and files on their way to the server; `jobs.create` uses it."""
        from torchyard.client.snapshots.snapshots import Snapshots

        return Snapshots(self.transport, self._path, self._settings)

    @cached_property
    def sweeps(self) -> Sweeps:
        """Sweeps: submit them, let them go on, read their trials."""
        from torchyard.client.sweeps.sweeps import Sweeps

        return Sweeps(self.transport, self._path, self.jobs)

    @cached_property
    def pipelines(self) -> Pipelines:
        """Pipelines: read their steps."""
        from torchyard.client.pipelines.pipelines import Pipelines

        return Pipelines(self.transport, self._path)

    @cached_property
    def lineage(self) -> Lineages:
        """What data, models and jobs were made of, and what was made of them."""
        from torchyard.client.lineage import Lineages

        return Lineages(self.transport, self._path)

    @cached_property
    def instances(self) -> Instances:
        """Compute instances: a person's own JupyterLab."""
        from torchyard.client.interactive.instances import Instances

        return Instances(self.transport, self._path)

    @cached_property
    def computes(self) -> Computes:
        """Clusters, their nodes and sizes."""
        from torchyard.client.computes import Computes

        return Computes(self.transport, self._path)

    @cached_property
    def models(self) -> Models:
        """Registered models."""
        from torchyard.client.models import Models

        return Models(self.transport, self._path, self.snapshots)

    @cached_property
    def online_endpoints(self) -> OnlineEndpoints:
        """Addresses that answer with models: their traffic and keys; calling them."""
        from torchyard.client.endpoints.online_endpoints import OnlineEndpoints

        return OnlineEndpoints(self.transport, self._path)

    @cached_property
    def online_deployments(self) -> OnlineDeployments:
        """Models behind the endpoints: their instances and logs."""
        from torchyard.client.endpoints.online_deployments import OnlineDeployments

        return OnlineDeployments(self.transport, self._path, self.snapshots)

    @cached_property
    def batch_endpoints(self) -> BatchEndpoints:
        """Endpoints that score many files by a job."""
        from torchyard.client.batch_endpoints.endpoints import BatchEndpoints

        return BatchEndpoints(self.transport, self._path, self.snapshots, self.jobs)

    @cached_property
    def batch_deployments(self) -> BatchDeployments:
        """Models behind the batch endpoints."""
        from torchyard.client.batch_endpoints.deployments import BatchDeployments

        return BatchDeployments(self.transport, self._path, self.snapshots)

    @cached_property
    def data(self) -> Data:
        """Data assets: named, versioned files and folders."""
        from torchyard.client.data import Data

        return Data(self.transport, self._path, self.snapshots)

    @cached_property
    def components(self) -> Components:
        """Steps of pipelines."""
        from torchyard.client.components import Components

        return Components(self.transport, self._path, self.snapshots)

    @cached_property
    def datastores(self) -> Datastores:
        """Places where data lies."""
        from torchyard.client.datastores import Datastores

        return Datastores(self.transport, self._path)

    @cached_property
    def environments(self) -> Environments:
        """Environments that jobs may name."""
        from torchyard.client.environments import Environments

        return Environments(self.transport, self._path, self.snapshots)

    @cached_property
    def experiments(self) -> Experiments:
        """Names under which jobs are kept together."""
        from torchyard.client.experiments import Experiments

        return Experiments(self.transport, self._path)

    @cached_property
    def workspaces(self) -> Workspaces:
        """The server's workspaces and their settings."""
        from torchyard.client.workspaces import Workspaces

        return Workspaces(self.transport)

    @cached_property
    def users(self) -> Users:
        """People, their roles and tokens, and the audit."""
        from torchyard.client.users import Users

        return Users(self.transport, self._path, self.workspace)

    @cached_property
    def quotas(self) -> Quotas:
        """Limits, and requests for more."""
        from torchyard.client.quotas import Quotas

        return Quotas(self.transport, self._path)

    def close(self) -> None:
        """Close the connection; a `with` block does it at its end. Jobs go on."""
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client(workspace={self.workspace!r}, url={self.transport.url!r})"
