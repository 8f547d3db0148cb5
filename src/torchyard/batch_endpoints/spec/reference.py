"""docs/reference/batch-endpoint-file.md, from the models of the files.

`python -m torchyard.batch_endpoints.spec.reference` prints it.
"""

from __future__ import annotations

from torchyard.base.documents.pages import table
from torchyard.batch_endpoints.spec.deployment_spec import BatchDeploymentFile
from torchyard.batch_endpoints.spec.endpoint_spec import BatchEndpointFile, Defaults
from torchyard.batch_endpoints.spec.invocation import InputFile, InvocationFile, OutputFile
from torchyard.batch_endpoints.spec.settings import (
    InnerSettings,
    OwnSettings,
    ResourcesFile,
    RetrySettings,
)

_INTRODUCTION = (
    "Made from the models in `src/torchyard/batch_endpoints/spec/` by `python -m "
    "torchyard.batch_endpoints.spec.reference`; edit those, not this. Files of Azure's batch "
    "endpoints and model deployments are read as they are. Words of a fixed set are read in any "
    "case."
)


def page() -> str:
    lines = [
        *("# Batch endpoint files, key by key", "", _INTRODUCTION),
        *table("The endpoint", BatchEndpointFile),
        *table("`defaults`", Defaults),
        *table("The deployment", BatchDeploymentFile),
        *table("`settings`", InnerSettings),
        *table("`settings.retry_settings`", RetrySettings),
        *table("`resources`", ResourcesFile),
        *table("`torchyard`", OwnSettings),
        *table("The file of `invoke`", InvocationFile),
        *table("`inputs.<name>`", InputFile),
        *table("`outputs.score`", OutputFile),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
