"""torchyard: PyTorch training at scale on machines you own, with Azure ML's interface.

The SDK::

    from torchyard import Client, command

    client = Client()
    job = client.jobs.create(command(command="python train.py", code=".", environment="python"))
    job.stream()

Every name is imported when it is first used.
"""

from __future__ import annotations

__version__ = "0.1.0"

# Where each public name lives. The worker's zip and the server hold this module without an SDK.
_MODULES = {
    "Client": "client.client",
    "CommandJob": "client.command_jobs",
    "Input": "client.job_documents",
    "Output": "client.job_documents",
    "command": "client.command_jobs",
    "PipelineJob": "client.pipeline_functions",
    "pipeline": "client.pipeline_functions",
    "load_component": "client.pipeline_steps",
    "Job": "client.job",
    "JobError": "client.job",
    "JobFailed": "client.job",
    "JobStatus": "client.job",
    "JobSummary": "client.job",
    "Stage": "client.job",
    "ChartLine": "client.job_history",
    "MetricPoint": "client.job_history",
    "MetricSummary": "client.job_history",
    "RemoteFile": "client.job_reader",
    "Listing": "client.resources",
    "Component": "client.components",
    "Compute": "client.computes",
    "DataAsset": "client.data",
    "Datastore": "client.datastores",
    "Environment": "client.environments",
    "ResolvedEnvironment": "client.environments",
    "Experiment": "client.experiments",
    "Model": "client.models",
    "Quota": "client.quotas",
    "QuotaRequest": "client.quotas",
    "Identity": "client.users",
    "User": "client.users",
    "Workspace": "client.workspaces",
    "BuildFailed": "base.errors",
    "Conflict": "base.errors",
    "Forbidden": "base.errors",
    "Internal": "base.errors",
    "InvalidInput": "base.errors",
    "InvalidSpec": "base.errors",
    "LimitExceeded": "base.errors",
    "NotAuthenticated": "base.errors",
    "NotFound": "base.errors",
    "Timeout": "base.errors",
    "TooManyRequests": "base.errors",
    "TorchyardError": "base.errors",
    "Unreachable": "base.errors",
}

# Written out for type checkers; a test compares it with `_MODULES`.
__all__ = [
    "BuildFailed",
    "ChartLine",
    "Client",
    "CommandJob",
    "Component",
    "Compute",
    "Conflict",
    "DataAsset",
    "Datastore",
    "Environment",
    "Experiment",
    "Forbidden",
    "Identity",
    "Input",
    "Internal",
    "InvalidInput",
    "InvalidSpec",
    "Job",
    "JobError",
    "JobFailed",
    "JobStatus",
    "JobSummary",
    "LimitExceeded",
    "Listing",
    "MetricPoint",
    "MetricSummary",
    "Model",
    "NotAuthenticated",
    "NotFound",
    "Output",
    "PipelineJob",
    "Quota",
    "QuotaRequest",
    "RemoteFile",
    "ResolvedEnvironment",
    "Stage",
    "Timeout",
    "TooManyRequests",
    "TorchyardError",
    "Unreachable",
    "User",
    "Workspace",
    "__version__",
    "command",
    "load_component",
    "pipeline",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torchyard.base.errors import (
        BuildFailed,
        Conflict,
        Forbidden,
        Internal,
        InvalidInput,
        InvalidSpec,
        LimitExceeded,
        NotAuthenticated,
        NotFound,
        Timeout,
        TooManyRequests,
        TorchyardError,
        Unreachable,
    )
    from torchyard.client.client import Client
    from torchyard.client.command_jobs import CommandJob, command
    from torchyard.client.components import Component
    from torchyard.client.computes import Compute
    from torchyard.client.data import DataAsset
    from torchyard.client.datastores import Datastore
    from torchyard.client.environments import Environment, ResolvedEnvironment
    from torchyard.client.experiments import Experiment
    from torchyard.client.job import (
        Job,
        JobError,
        JobFailed,
        JobStatus,
        JobSummary,
        Stage,
    )
    from torchyard.client.job_documents import Input, Output
    from torchyard.client.job_history import ChartLine, MetricPoint, MetricSummary
    from torchyard.client.job_reader import RemoteFile
    from torchyard.client.models import Model
    from torchyard.client.pipeline_functions import PipelineJob, pipeline
    from torchyard.client.pipeline_steps import load_component
    from torchyard.client.quotas import Quota, QuotaRequest
    from torchyard.client.resources import Listing
    from torchyard.client.users import Identity, User
    from torchyard.client.workspaces import Workspace
else:

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'torchyard' has no attribute {name!r}")
        import importlib

        if not any(other in globals() for other in _MODULES):
            from torchyard.base import errors

            errors.print_hints()
        value = getattr(importlib.import_module(f"torchyard.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_MODULES})
