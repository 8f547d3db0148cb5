"""Names of environments and images that Azure ML publishes, and what each becomes here.

Owns: the two tables, and the reasons for refusals.
Leaves: reading references to catalogue.py, plain Python images to image_names.py.
Always: first match wins; a name without a row is refused, and so is a name without Azure's prefix
that a user could have given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchyard.environments.names import curated_environments
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.types import Platform

_TORCH = "acpt-pytorch-2.13-cpu"
_PREFIX = "AzureML-"


@dataclass(frozen=True)
class Row:
    """`pattern` is matched against the whole name, in any case, without `AzureML-`, version and
    label; `curated` is a curated environment, empty where none fits, for the given `reason`.
    """

    pattern: str
    curated: str
    reason: str = ""


# What Azure has published since 2019, by the names in its documents, notebooks and release tags.
TABLE = (
    Row(r"acpt-.*", _TORCH),
    Row(r"acft-.*", "", "it is an image for fine-tuning with Azure's own components in it"),
    Row(r"(pytorch|torch)-.*", _TORCH),
    Row(r"(deepspeed|horovod|onnxruntime-training|fairscale)-.*", _TORCH),
    Row(r"(sklearn|scikit-learn)-.*", "sklearn-1.5"),
    Row(r"lightgbm-.*", "lightgbm-3.3"),
    Row(r"(tensorflow|tf)-.*", "tensorflow-2.16-cuda12"),
    Row(r"(minimal|python|python-sdk)(-.*)?", "python"),
    Row(r"tutorial|(mlflow|dask)-.*", "sklearn-1.5"),
    Row(r"automl.*|.*-automl-.*", "", "automated machine learning is a service of Azure's"),
    Row(r"(pyspark|spark).*", "", "it is an image with Apache Spark, which does not run here"),
    Row(r"(responsibleai|rai-).*", "", "it holds Azure's own components"),
    Row(r"(model-evaluation|model-management|llm-|ai-|promptflow|python-sdk-v2).*", "",
        "it holds Azure's own components"),
    Row(r".*-inference(-.*)?|triton.*|minimal-.*inference.*", "",
        "it is an image that serves models"),
    Row(r"(designer|hyperdrive|sidecar|vowpalwabbit|chainer|theano|cntk).*", "",
        "nothing could take its place"),
)  # fmt: skip

# Published names have words of the table's families, a version, and a platform; any other name
# without the prefix may be a missing environment of the workspace.
_UNMISTAKABLE = re.compile(
    r"(acpt|acft)-.+|[a-z]+(-[a-z]+)*-\d+(\.\d+)+(-(ubuntu|py|cuda|rocm|cpu|gpu|inference)[\w.]*)*",
    re.IGNORECASE,
)
# Images below `mcr.microsoft.com/azureml/curated/` carry the environments' names.
_CURATED_IMAGE = re.compile(r"mcr\.microsoft\.com/azureml/curated/([\w.-]+)", re.IGNORECASE)
_ACPT_IMAGE = re.compile(
    r"(?:mcr\.microsoft\.com|[\w.]+\.azurecr\.io/public/azureml)/aifx/(?:acpt/)?([\w.-]+)",
    re.IGNORECASE,
)
_TORCH_IMAGE = re.compile(
    r"(?:nvcr\.io/nvidia|pytorch|pytorch/pytorch|rocm)/pytorch", re.IGNORECASE
)


@dataclass(frozen=True)
class Successor:
    """`curated` takes the place of a published name; None, with a `reason`, where nothing can."""

    curated: Curated | None
    reason: str = ""


def substitute(name: str, platform: Platform, *, is_azures: bool = True) -> Successor | None:
    """What a published name becomes on this platform; None when nobody published it.

    Args:
        name: without Azure's prefix.
        is_azures: it was written with the prefix or the address of Azure's registry.
    """
    if not is_azures and not _UNMISTAKABLE.fullmatch(name):
        return None
    for row in TABLE:
        if re.fullmatch(row.pattern, name, re.IGNORECASE):
            if not row.curated:
                return Successor(None, row.reason)
            return Successor(_for(row.curated, platform))
    return None


def name_in(image: str) -> str:
    """The published environment in an image's name (without tag); empty where there is none."""
    match = _CURATED_IMAGE.fullmatch(image)
    if match:
        return f"{_PREFIX}{match[1]}"
    if _TORCH_IMAGE.fullmatch(image):
        return _TORCH
    return f"{_PREFIX}acpt-{match[1]}" if (match := _ACPT_IMAGE.fullmatch(image)) else ""


def _for(name: str, platform: Platform) -> Curated | None:
    """The one of two twins that fits the platform's accelerator."""
    curated = curated_environments.named(name)
    assert curated is not None
    if curated.accelerator in ("", platform.accelerator) or not curated.twin:
        return curated
    return curated_environments.named(curated.twin)
