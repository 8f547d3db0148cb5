"""What a job file's `environment` means on this server.

Owns: the server's platform, a workspace's own names, whether it takes substitutes.
Leaves: the grammar of definitions to definition.py, names to names/catalogue.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchyard.base.db import Database
from torchyard.environments import assets, definition
from torchyard.environments.build.folders import BuiltFolders
from torchyard.environments.images.definition import Sources
from torchyard.environments.names import catalogue, substitutes
from torchyard.environments.names.substitutes import SubstitutePolicy
from torchyard.environments.packages import accelerators, pythons
from torchyard.environments.packages.pythons import Pythons
from torchyard.environments.types import EnvironmentSpec, Platform, this_platform
from torchyard.workspaces import actions as workspaces


class Resolver:
    """
    Args:
        offers: the Pythons that environments can have.
        folders: those that are built, of which some have another Python than they name.
        sources: what Dockerfiles of a workspace are read from, by its name.
        platform: what to build for; None asks this machine's tools, once.
        is_shared: whether several people use the server: then a workspace without a setting of
            its own takes no substitutes.
    """

    def __init__(
        self,
        db: Database,
        offers: Pythons,
        folders: BuiltFolders,
        sources: Callable[[str], Sources],
        platform: Platform | None = None,
        is_shared: bool = False,
    ) -> None:
        self._db = db
        self._pythons = offers
        self._folders = folders
        self._sources = sources
        self._platform = platform
        self._is_shared = is_shared

    @property
    def platform(self) -> Platform:
        if self._platform is None:
            self._platform = this_platform(accelerators.find(), pythons.installed())
        return self._platform

    def resolve(
        self, environment: Any, workspace: str = "", *, enforce_policy: bool = True
    ) -> EnvironmentSpec:
        """The spec of a reference or an inline definition.

        Args:
            workspace: whose own environments may be named; none when empty.
            enforce_policy: whether a workspace that takes no substitutes refuses them.

        Raises:
            InvalidSpec: it can't be honoured; `at` says which part of it.
            NotFound: no environment has the name.
        """
        policy = self._policy_of(workspace) if workspace and enforce_policy else substitutes.allow
        owned = assets.owned(self._db, workspace) if workspace else catalogue.no_assets
        sources = self._sources(workspace)
        spec = definition.resolve(environment, self.platform, (), owned, policy, sources)
        return self._folders.settled(self._pythons.settled(spec, policy))

    def _policy_of(self, workspace: str) -> SubstitutePolicy:
        allowed = workspaces.allows_substitutes(self._db, workspace)
        if allowed is None:
            allowed = not self._is_shared
        return substitutes.allow if allowed else substitutes.refusing_in(workspace)
