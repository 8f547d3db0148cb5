"""docs/reference/endpoint-file.md, from the models of the files.

`python -m torchyard.endpoints.spec.reference` prints it.
"""

from __future__ import annotations

from torchyard.base.documents.pages import table
from torchyard.endpoints.spec.data_collection import (
    CollectedData,
    CollectionSettings,
    CollectorSettings,
)
from torchyard.endpoints.spec.deployment_spec import CodeFile, ModelFile, OnlineDeploymentFile
from torchyard.endpoints.spec.endpoint_spec import OnlineEndpointFile
from torchyard.endpoints.spec.inference_config import InferenceConfig, Route
from torchyard.endpoints.spec.settings import (
    Batching,
    OwnSettings,
    Probe,
    RequestSettings,
    ScaleSettings,
)

_INTRODUCTION = (
    "Made from the models in `src/torchyard/endpoints/spec/` by `python -m "
    "torchyard.endpoints.spec.reference`; edit those, not this. Files of Azure's online endpoints "
    "and managed online deployments are read as they are. Words of a fixed set are read in any "
    "case."
)
_ROUTES = (
    "An image that stands alone, without a scoring script, would have to start a server of its "
    "own: TensorFlow Serving, TorchServe, Triton, plumber. Such deployments are refused by name. "
    "With a scoring script, or with packages that are installed here, "
    "azureml-inference-server-http answers, and its routes are those above."
)
_OWN = (
    "`torchyard:` stands at the top of a deployment's file. Azure's clients say the same by tags: "
    '`torchyard.max_queue: "20"`; a mapping is JSON there.'
)


def page() -> str:
    lines = [
        *("# Endpoint and deployment files, key by key", "", _INTRODUCTION),
        *table("The endpoint", OnlineEndpointFile),
        *table("The deployment", OnlineDeploymentFile),
        *table("`model`", ModelFile),
        *table("`code_configuration`", CodeFile),
        *table("`environment.inference_config`", InferenceConfig),
        *table("`environment.inference_config.<route>`", Route),
        *("", _ROUTES),
        *table("`request_settings`", RequestSettings),
        *table("`liveness_probe` and `readiness_probe`", Probe),
        *table("`scale_settings`", ScaleSettings),
        *table("`data_collector`", CollectorSettings),
        *table("`data_collector.collections.<name>`", CollectionSettings),
        *table("`data_collector.collections.<name>.data`", CollectedData),
        *table("`torchyard`", OwnSettings),
        *("", _OWN),
        *table("`torchyard.batching`", Batching),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
