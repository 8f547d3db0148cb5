"""Which addresses SDK v1 has inside a job.

Owns: the variables that lead it to the relay, the list of Azure ML's services.
Leaves: what the relay answers to sdk_v1.py, what else Azure's clients need to the server.
Always: a caller that only sets variables loads nothing that speaks HTTP.

Source: azureml-core 1.61 reads the address of each service from `AZUREML_DEV_URL_<service>` before
it looks anywhere else.
"""

from __future__ import annotations

from torchyard.shared.plan import LaunchPlan

DISCOVERY = "/discovery"


def variables(plan: LaunchPlan, relay_url: str) -> dict[str, str]:
    """What leads SDK v1 to the relay; nothing where the job's server has no way in for it."""
    if "AZUREML_RUN_TOKEN" not in plan.variables:
        return {}
    return {
        "AZUREML_DEV_URL_METRICS": relay_url,
        "AZUREML_DEV_URL_RUN_HISTORY": relay_url,
        "AZUREML_DISCOVERY_SERVICE_ENDPOINT": relay_url + DISCOVERY,
    }


def services(base: str) -> dict[str, str]:
    """Where each of Azure ML's services is: all are one server."""
    names = (
        "api", "experimentation", "history", "hyperdrive", "modelmanagement", "notebooks",
        "pipelines", "studio", "catalog", "registry",
    )  # fmt: skip
    return dict.fromkeys(names, base)
