"""The environments of one server.

Owns: putting its parts together.
Leaves: what each of them does to resolving.py and build/.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.home.node_folder import NodeFolder
from torchyard.environments.build.builds import Builds
from torchyard.environments.build.compiling import BackgroundCompiler, LocalCompiler
from torchyard.environments.build.folders import BuiltFolders
from torchyard.environments.build.image_environments import FindEngine, Images
from torchyard.environments.build.records import BuildRecords
from torchyard.environments.build.runner_builds import RunnerBuilds
from torchyard.environments.images import containers
from torchyard.environments.packages.pythons import Pythons
from torchyard.environments.resolving import Resolver
from torchyard.environments.types import Platform
from torchyard.executors.runner_client import RunnerClient


class Environments:
    """What a server knows and does about environments, by its parts.

    Args:
        home: the server's folder; what is known of each environment is in `environments/` below.
        variables: the process environment; where pip's and uv's configuration is read from.
        platform: what to build for; None asks this machine's tools, once.
        is_shared: whether several people use the server: then a workspace without a setting of
            its own takes no substitutes.
        find_engine: finds the container engine that builds images.
        node: where environments are for jobs; the home itself when it is None.
        runner: has environments built by the build user; None builds as the server's.
        wheel_folder: a folder for the wheels of versions; None keeps those of releases in the home.
    """

    def __init__(
        self,
        home: Path,
        db: Database,
        clock: Clock,
        variables: Mapping[str, str],
        platform: Platform | None = None,
        is_shared: bool = False,
        find_engine: FindEngine = containers.find,
        node: NodeFolder | None = None,
        runner: RunnerClient | None = None,
        wheel_folder: Path | None = None,
    ) -> None:
        variables, node = dict(variables), node or NodeFolder(home)
        pythons = Pythons(variables)
        self.db = db
        self.images = Images(home, variables, find_engine, has_build_user=runner is not None)
        self.folders = BuiltFolders(
            home / "environments", node.environments, db, clock, self.images, wheel_folder
        )
        sources = self.images.sources
        self.resolver = Resolver(db, pythons, self.folders, sources, platform, is_shared)
        self.records = BuildRecords(db, clock, self.folders)
        runner_builds = RunnerBuilds(runner, node) if runner else None
        self.compiler = BackgroundCompiler(
            self.folders, self.records, node.bytecode_cache, runner_builds or LocalCompiler()
        )
        self.builds = Builds(
            node.uv_cache,
            variables,
            self.folders,
            self.records,
            self.images,
            pythons,
            self.compiler,
            runner_builds,
        )
