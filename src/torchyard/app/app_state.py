"""What routes receive by FastAPI's `Depends`, kept in `app.state`.

Owns: the names in `app.state`, what each of the `Hooks` calls.
Leaves: reading them to base/dependencies.py and the packages.
Always: `app.state` is filled before the first request.
"""

from __future__ import annotations

from functools import partial

from starlette.datastructures import State

from torchyard.app.monitoring.probes import Probes
from torchyard.app.monitoring.requests import Requests
from torchyard.app.monitoring.server_metrics import ServerMetrics
from torchyard.app.parts import Parts
from torchyard.azureml.common.context import OpenTls
from torchyard.base.bodies.body_spool import BodySpool
from torchyard.base.bodies.handover import Handover
from torchyard.base.home.ray_archive import RayArchives
from torchyard.batch_endpoints.actions import model_uses
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.interactive.running_services import JobServices, ServicesAt
from torchyard.interactive.shells import Shells
from torchyard.jobs import owners
from torchyard.jobs.admission import quota_checks
from torchyard.jobs.attempts.idle_time import IdleTime
from torchyard.jobs.files import data_sources, model_sources
from torchyard.jobs.messages import checks
from torchyard.jobs.requests import workspace_lifecycle
from torchyard.jobs.services import FileServices, Services
from torchyard.workspaces.audit import Audit
from torchyard.workspaces.hooks import Hooks


def fill(
    state: State,
    parts: Parts,
    builds: RequestedBuilds,
    audit: Audit,
    open_tls: OpenTls | None,
    storage_domain: str,
    services_at: ServicesAt | None,
) -> None:
    """What routes receive by `Depends`; see base/dependencies.py."""
    services = parts.services
    state.access = parts.access
    state.trouble = ""
    state.signer = parts.signer
    state.scheduler = parts.scheduler
    state.audit = audit
    state.body_spool = BodySpool(services.home / "spool")
    state.handover = Handover()
    state.services = services
    state.home = services.home
    state.jobs_as_server_user = services.runner is None
    state.db = services.db
    state.clock = services.clock
    state.blobs = services.blobs
    state.datastores = services.datastores
    state.environments = services.environments
    state.devices = services.devices
    state.engines = services.engines
    state.for_nodes = services.for_nodes
    state.fetcher = services.fetcher
    state.idle_time = IdleTime(services)
    state.shells = Shells()
    state.job_services = JobServices(services, services_at or ServicesAt())
    state.builds = builds
    state.ray_heads = parts.heads
    state.ray_archives = RayArchives(services.home)
    state.open_tls = open_tls
    state.storage_domain = storage_domain
    state.hooks = _hooks(services)


def _hooks(services: Services) -> Hooks:
    return Hooks(
        find_model=partial(model_sources.find, services),
        resolve_data=partial(data_sources.asset_uri, services),
        delete_assets=partial(model_uses.delete_assets, services),
        provision_workspace=partial(workspace_lifecycle.provision, services),
        delete_workspace=partial(_delete_workspace, services),
        check_notifications=partial(checks.check_workspace, services.messages),
        quota_use=partial(quota_checks.use_of, services),
        stop_unable=partial(owners.stop_unable, services),
    )


def _delete_workspace(services: FileServices, workspace: str) -> None:
    from torchyard.releases import actions as releases

    workspace_lifecycle.delete_empty(services, workspace)
    releases.forget(services.db, workspace)


def fill_monitoring(state: State, parts: Parts, requests: Requests, audit: Audit) -> None:
    state.requests = requests
    state.probes = Probes(parts.services, parts.scheduler)
    state.server_metrics = ServerMetrics(parts.services, parts.scheduler, state.probes, audit)
