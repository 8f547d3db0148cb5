"""Connect to a server and name its nouns.

Owns: which server and which workspace are meant.
Leaves: each noun to its module, HTTP to base/http.py, the embedded server to embedded.py.
Always: the workspace is the first of the one given, TORCHYARD_WORKSPACE, the nearest
`config.json`, `default`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import quote

from torchyard.base import settings as base_settings
from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.base.http import Transport
from torchyard.base.settings import DEFAULT_WORKSPACE, Settings

# A command asks one noun: the others stay unread.
if TYPE_CHECKING:
    from torchyard.client.components import Components
    from torchyard.client.computes import Computes
    from torchyard.client.data import Data
    from torchyard.client.datastores import Datastores
    from torchyard.client.environments import Environments
    from torchyard.client.experiments import Experiments
    from torchyard.client.jobs import Jobs
    from torchyard.client.models import Models
    from torchyard.client.quotas import Quotas
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.users import Users
    from torchyard.client.workspaces import Workspaces

CONFIG_FILES = (".azureml/config.json", "aml_config/config.json", "config.json")


class Client:
    """One workspace of one server; not for use by several threads at once.

    The nouns: `jobs`, `data`, `datastores`, `models`, `components`, `computes`, `environments`,
    `experiments`, `workspaces`, `snapshots`, `users`, `quotas`.

    Args:
        workspace: found as the command finds it when empty.
        settings: read from the environment when None. With its `url` empty the server of this
            machine is meant, and started when none runs.
        transport: a connection to use instead.
        on_start: called when a server has to be started, which takes a second or two.

    Raises:
        NotAuthenticated: there is a URL and no token.
        Unreachable: no server answers, or none could be started.

    Example::

        from torchyard import Client, command

        client = Client()
        job = client.jobs.create(command(command="python train.py", code=".", environment="python"))
        client.jobs.stream(job.name)
    """

    def __init__(
        self,
        workspace: str = "",
        *,
        settings: Settings | None = None,
        transport: Transport | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        self._settings = settings or base_settings.read()
        self.workspace = workspace or workspace_meant(self._settings, Path.cwd())
        self.transport = transport or _transport(self._settings, on_start)
        self._here = f"/v1/workspaces/{quote(self.workspace, safe='')}"

    @cached_property
    def jobs(self) -> Jobs:
        from torchyard.client.jobs import Jobs

        return Jobs(self.transport, self._here, self.snapshots)

    @cached_property
    def snapshots(self) -> Snapshots:
        from torchyard.client.snapshots.snapshots import Snapshots

        return Snapshots(self.transport, self._here, self._settings)

    @cached_property
    def computes(self) -> Computes:
        from torchyard.client.computes import Computes

        return Computes(self.transport, self._here)

    @cached_property
    def models(self) -> Models:
        from torchyard.client.models import Models

        return Models(self.transport, self._here, self.snapshots)

    @cached_property
    def data(self) -> Data:
        from torchyard.client.data import Data

        return Data(self.transport, self._here, self.snapshots)

    @cached_property
    def components(self) -> Components:
        from torchyard.client.components import Components

        return Components(self.transport, self._here, self.snapshots)

    @cached_property
    def datastores(self) -> Datastores:
        from torchyard.client.datastores import Datastores

        return Datastores(self.transport, self._here)

    @cached_property
    def environments(self) -> Environments:
        from torchyard.client.environments import Environments

        return Environments(self.transport, self._here, self.snapshots)

    @cached_property
    def experiments(self) -> Experiments:
        from torchyard.client.experiments import Experiments

        return Experiments(self.transport, self._here)

    @cached_property
    def workspaces(self) -> Workspaces:
        from torchyard.client.workspaces import Workspaces

        return Workspaces(self.transport)

    @cached_property
    def users(self) -> Users:
        from torchyard.client.users import Users

        return Users(self.transport, self._here, self.workspace)

    @cached_property
    def quotas(self) -> Quotas:
        from torchyard.client.quotas import Quotas

        return Quotas(self.transport, self._here)

    def close(self) -> None:
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


def connect(
    settings: Settings | None = None,
    workspace: str = "",
    on_start: Callable[[], None] | None = None,
) -> Client:
    """A client for TORCHYARD_URL, or for the server of this machine; see `Client`."""
    return Client(workspace, settings=settings, on_start=on_start)


def workspace_meant(settings: Settings, folder: Path) -> str:
    """TORCHYARD_WORKSPACE, else what the nearest `config.json` from `folder` upwards names."""
    return settings.workspace or _configured(folder) or DEFAULT_WORKSPACE


def _configured(folder: Path) -> str:
    for parent in (folder, *folder.parents):
        for name in CONFIG_FILES:
            try:
                body = json.loads((parent / name).read_bytes())
            except (OSError, ValueError):
                continue
            workspace = body.get("workspace_name") if isinstance(body, dict) else None
            if isinstance(workspace, str) and workspace:
                return workspace
    return ""


def _log_in(settings: Settings) -> str:
    hint = f"log in with `yard login {settings.url}`"
    if settings.url_from == "TORCHYARD_URL":
        return f"{hint}, set TORCHYARD_TOKEN, or unset TORCHYARD_URL to use this machine's server"
    return f"{hint}; its owner has a token for you. A server of your own: set TORCHYARD_HOME"


def _transport(settings: Settings, on_start: Callable[[], None] | None) -> Transport:
    if settings.url:
        if not settings.url.startswith(("http://", "https://")):
            raise InvalidInput(
                f"`{settings.url}` is not a server's address", "write `https://host:8766`"
            )
        if not settings.token:
            raise NotAuthenticated(
                f"no token for the server `{settings.url}`",
                _log_in(settings),
            )
        return Transport(settings.url, settings.token, ca_cert=settings.ca_cert)
    from torchyard.client import embedded

    running = embedded.ensure(settings, on_start=on_start)

    def another(url: str) -> str:
        # A server that is alone is waited for where it was.
        found = embedded.answering(settings, but=url) if settings.servers_folder.is_dir() else None
        return "" if found is None else found.url

    return Transport(running.url, embedded.token(settings), elsewhere=another)
