"""What becomes of a job's outputs when it went well.

Owns: registering what the outputs ask for by `name`; telling of those that stayed empty.
Leaves: versions to data/assets.py and models/actions.py.
Always: each output is registered once, however often this is called; one that can't be is told
as a notice, and the job is Completed all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from torchyard.base.errors import TorchyardError
from torchyard.data import assets
from torchyard.data.types import MODEL_TYPES, ONNX_TYPE
from torchyard.jobs.files import model_sources, outputs
from torchyard.jobs.files.outputs import OutputPlace
from torchyard.jobs.records.types import CommandJob, Job
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec.inputs import Output
from torchyard.models import actions as models
from torchyard.shared import locks

_log = logging.getLogger(__name__)
_LOCKS = 16


def are_named(job: CommandJob) -> bool:
    """Whether anything of the job is to be registered, which may copy a large model."""
    return any(output.name for output in job.spec.outputs.values())


def settle(services: FileServices, job: CommandJob) -> None:
    """Register the outputs that have a `name`, and tell of empty ones; the job is about to be
    Completed.
    """
    locations = outputs.destinations_of(job)
    for name in job.spec.outputs:
        if not outputs.may_have_files(services, job.workspace, locations[name], if_unknown=True):
            text = f"output `{name}` is empty: the command wrote nothing to "
            outputs.tell(services, job, f"{text}`${{{{outputs.{name}}}}}`")
    for fault in register(services, job, job.spec.outputs):
        outputs.tell(services, job, fault)


def register(services: FileServices, job: CommandJob, as_assets: Mapping[str, Output]) -> list[str]:
    """Register outputs of a job under the names that these have, unless they are already; what
    could not be registered, in words.
    """
    locations, faults = outputs.destinations_of(job), []
    for name, output in as_assets.items():
        if not output.name:
            continue
        try:
            # A server that takes over may come while the one before it is at work still.
            with locks.hold(services.lock(f"outputs-{job.id % _LOCKS}")):
                _register(services, job, name, output, locations[name])
        except TorchyardError as error:
            faults.append(f"output `{name}` could not be registered: {error.message}")
        except Exception:
            _log.exception("output %s of %s could not be registered", name, job.name)
            faults.append(f"output `{name}` could not be registered; see `yard server logs`")
    return faults


def _register(
    services: FileServices, job: Job, name: str, output: Output, location: OutputPlace
) -> None:
    asset_name, version = output.name, output.version
    if output.type in (*MODEL_TYPES, ONNX_TYPE):
        _register_model(services, job, name, output.type, asset_name, version)
        return
    request = assets.DataRequest(
        name=asset_name,
        path=location.data_uri,
        type=output.type,
        version=str(version or ""),
        job=job.name,
    )
    assets.register(
        services.db, services.clock, job.workspace, request, location.data_uri, job.owner
    )


def _register_model(
    services: FileServices, job: Job, output: str, type: str, name: str, version: str
) -> None:
    path = f"azureml://jobs/{job.name}/outputs/{output}"
    registered_models = models.of_job(services.db, job.workspace, job.name)
    if any(model.name == name and model.source == path for model in registered_models):
        return
    document = {"name": name, "path": path, "type": type}
    if version:
        document["version"] = version
    models.register(
        services.db,
        services.clock,
        services.datastores,
        lambda workspace, source_path: model_sources.find(services, workspace, source_path),
        job.workspace,
        document,
        job.owner,
    )
