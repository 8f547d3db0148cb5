"""Names of environments and images that Azure ML publishes, and what each becomes here.

Owns: the two tables, and the words of those that are refused.
Leaves: reading references to catalogue.py, plain Python images to image_names.py.
Always: first match wins; what has no row is refused, never guessed at, and so is a name without
Azure's prefix that anybody could have given; a name in the place of which something else is used
says so in a notice.
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
    label; `ours` is a curated environment, empty where there is none: then `why` says it.
    """

    pattern: str
    ours: str
    why: str = ""


# What was published since 2019, by the names in Azure's documents, notebooks and release tags.
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
        "it has no successor that could take its place"),
)  # fmt: skip

# Names that were published, in words of the table's families, a version, and what they run on; any
# other without the prefix may be a workspace's own that is not there.
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
class Substitute:
    """`ours` takes the place of what was asked for; None, and `why`, where nothing can."""

    ours: Curated | None
    why: str = ""


def substitute(name: str, platform: Platform, *, is_azures: bool = True) -> Substitute | None:
    """What a published name becomes on this platform; None when nobody published it.

    Args:
        name: without Azure's prefix.
        is_azures: it was written with the prefix, or with the address of Azure's registry.
    """
    if not is_azures and not _UNMISTAKABLE.fullmatch(name):
        return None
    for row in TABLE:
        if re.fullmatch(row.pattern, name, re.IGNORECASE):
            if not row.ours:
                return Substitute(None, row.why)
            return Substitute(_for(row.ours, platform))
    return None


def name_in(image: str) -> str:
    """The published environment that an image's name (without tag) carries, or nothing."""
    found = _CURATED_IMAGE.fullmatch(image)
    if found:
        return f"{_PREFIX}{found[1]}"
    if _TORCH_IMAGE.fullmatch(image):
        return _TORCH
    return f"{_PREFIX}acpt-{found[1]}" if (found := _ACPT_IMAGE.fullmatch(image)) else ""


def _for(name: str, platform: Platform) -> Curated | None:
    """The one of two twins that the platform's accelerator needs."""
    found = curated_environments.named(name)
    assert found is not None
    if found.accelerator in ("", platform.accelerator) or not found.twin:
        return found
    return curated_environments.named(found.twin)
