"""Names of environments and images that Azure ML publishes, and what each becomes here.

Owns: the published names with their substitutes (`published_names.txt`), and the reasons for
refusals.
Leaves: reading references to catalogue.py, plain Python images to image_names.py.
Always: a name gets a substitute only if Azure published exactly that name, in any case; a name that
merely looks like one is unknown. The substitute is the first of those in its line whose Python the
machine has, or uv can download. It holds the version in the name, or the nearest that can be
installed, of the same major version; except for Azure Container for PyTorch on a GPU with a CUDA
that PyPI has no torch for, with torch 2.3 to 2.7, whose names Azure itself fills with newer
versions, or with torch 2.8 without a GPU. Where such a name's torch is older than 2.6, `torch.load`
reads whole models, as it did then.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard.environments.names import curated_environments
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.types import Platform

_NEWEST = "acpt-pytorch-2.13-cpu"
_PREFIX = "AzureML-"
# As Azure would name an image with the newest.
_NEWEST_IMAGE = f"{_PREFIX}acpt-ubuntu2204-cu130-py311-torch2.13"
_NAMES_FILE = Path(__file__).with_name("published_names.txt")


@dataclass(frozen=True)
class Refusal:
    """`pattern` is matched against the whole name, in any case, without `AzureML-`, version and
    label; nothing takes the place of such a name, for the given `reason`.
    """

    pattern: str
    reason: str


# Families of published names. First match wins.
REFUSALS = (
    Refusal(r"acft-.*", "it is an image for fine-tuning with Azure's own components in it"),
    Refusal(r"tensorflow-1\..*", "TensorFlow 1 needs Python 3.7 or 3.6, which is not on the "
            "server's machine, and scripts for it can't run on TensorFlow 2; install Python 3.7 "
            "beside the server's own, for example with pyenv"),
    Refusal(r"automl.*|.*-automl(-.*)?", "automated machine learning is a service of Azure's"),
    Refusal(r"(pyspark|spark).*", "it is an image with Apache Spark, which does not run here"),
    Refusal(r"(responsibleai|rai-).*", "it holds Azure's own components"),
    Refusal(r"(model-evaluation|model-management|llm-|ai-|promptflow|python-sdk-v2).*",
            "it holds Azure's own components"),
    Refusal(r".*-inference(-.*)?|triton.*", "it is an image that serves models"),
    Refusal(r"(designer|hyperdrive|sidecar|vowpalwabbit|chainer|theano|cntk).*",
            "nothing could take its place"),
)  # fmt: skip

# Names with a version and a platform are Azure's also without the prefix; any other name may be a
# missing environment of the workspace.
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
# Each image of Azure Container for PyTorch is named by what is in it.
_ACPT_CONTENT = re.compile(
    r"acpt-(?:\w+-)?ubuntu\d{4}-(?:cu|cuda|rocm)[\d.]+-py\d+-torch[\w.]+", re.IGNORECASE
)
_TORCH_IMAGE = re.compile(r"(?:nvcr\.io/nvidia|rocm)/pytorch", re.IGNORECASE)
# Tags of PyTorch's own images begin with its version.
_PYTORCH_IMAGE = re.compile(r"(?:pytorch/)?pytorch/pytorch", re.IGNORECASE)
# torch 2.6 was the first whose `torch.load` reads nothing but weights, unless it is told to.
# Names write it as `pytorch-1.12`, `torch2.2.2` or `torch1131`.
_TORCH_IN_NAME = re.compile(
    r"(?:pytorch-|torch)(?:(\d+)\.(\d+)|(\d)(\d{1,2})\d(?![\d.]))", re.IGNORECASE
)
_WEIGHTS_ONLY_SINCE = (2, 6)
# The oldest Python that uv offers.
_OLDEST_DOWNLOAD = (3, 8)
WHOLE_MODELS = ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
# Versions of PyTorch 1 that are environments of their own for Python 3.8; earlier ones need 3.7.
_OLDEST_FOR_38, _NEWEST_FOR_38 = 4, 12
_TAG_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.|-|\Z)", re.ASCII)


@dataclass(frozen=True)
class Successor:
    """`curated` takes the place of a published name; None, with a `reason`, where nothing can.

    `variables` make it behave as the name says, for jobs that request it by that name.
    """

    curated: Curated | None
    reason: str = ""
    variables: tuple[tuple[str, str], ...] = ()


@functools.cache
def _substitutes() -> dict[str, tuple[str, list[str]]]:
    """Names in lower case: (the name as Azure writes it, curated environments, nearest first)."""
    lines = _NAMES_FILE.read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return {name.lower(): (name, curated) for name, *curated in rows}


def names() -> Sequence[str]:
    """Names that Azure published and that have a substitute, without the prefix, as it writes
    them."""
    return [name for name, _ in _substitutes().values()]


def is_published(name: str) -> bool:
    """Whether Azure published exactly that name; `name` is without its prefix."""
    return name.lower() in _substitutes()


def substitute(name: str, platform: Platform, *, is_azures: bool = True) -> Successor | None:
    """What a published name becomes on this platform; None when nobody published it.

    Args:
        name: without Azure's prefix.
        is_azures: it was written with the prefix or the address of Azure's registry.
    """
    if not is_azures and not _UNMISTAKABLE.fullmatch(name):
        return None
    _, nearest_first = _substitutes().get(name.lower(), ("", []))
    if _ACPT_CONTENT.fullmatch(name):
        nearest_first = _with_torch_of(name)
    for curated in nearest_first:
        successor = _for(curated, platform)
        if successor is not None and _has_python(platform, successor):
            return _as_then(name, successor)
    for refusal in REFUSALS:
        if re.fullmatch(refusal.pattern, name, re.IGNORECASE):
            return Successor(None, refusal.reason)
    return None


def _has_python(platform: Platform, curated: Curated) -> bool:
    major, _, minor = curated.python.partition(".")
    if not curated.python or (int(major), int(minor)) >= _OLDEST_DOWNLOAD:
        return True
    return curated.python in platform.pythons


def _torch_in(name: str) -> tuple[int, int] | None:
    """The first two numbers of the torch in a name."""
    torch = _TORCH_IN_NAME.search(name)
    if torch is None:
        return None
    major, minor = (int(number) for number in torch.groups() if number is not None)
    return major, minor


def _with_torch_of(name: str) -> list[str]:
    """The environments with the torch in a name, the one with a twin first, then the newest."""
    torch = _torch_in(name)
    if torch is None:
        return [_NEWEST]
    start = f"acpt-pytorch-{torch[0]}.{torch[1]}-"
    same = [
        curated.name for curated in curated_environments.every() if curated.name.startswith(start)
    ]
    with_twin = f"{start}cpu"
    if curated_environments.find_by_name(with_twin) is not None:
        same.insert(0, with_twin)
    return [*same, _NEWEST]


def _as_then(name: str, curated: Curated | None) -> Successor:
    """Torch that loads models as the torch in the name does, where that matters."""
    torch = _torch_in(name)
    if curated is None or torch is None or not curated.name.startswith("acpt-"):
        return Successor(curated)
    major, minor = torch
    is_that_torch = curated.name.startswith(f"acpt-pytorch-{major}.{minor}-")
    if is_that_torch or (major, minor) >= _WEIGHTS_ONLY_SINCE:
        return Successor(curated)
    return Successor(curated, variables=(WHOLE_MODELS,))


def name_in(image: str, tag: str = "") -> str:
    """The published environment in an image's name; empty where it names none."""
    if match := _CURATED_IMAGE.fullmatch(image):
        return f"{_PREFIX}{match[1]}"
    if match := _ACPT_IMAGE.fullmatch(image):
        return f"{_PREFIX}acpt-{match[1]}"
    if _TORCH_IMAGE.fullmatch(image):
        return _NEWEST_IMAGE
    if _PYTORCH_IMAGE.fullmatch(image):
        version = _TAG_VERSION.match(tag)
        return _name_with_torch(int(version[1]), int(version[2])) if version else _NEWEST_IMAGE
    return ""


def _name_with_torch(major: int, minor: int) -> str:
    """A published name with that version of torch, or the newest."""
    if major == 1 and minor < _OLDEST_FOR_38:
        return f"{_PREFIX}PyTorch-1.{minor}-CPU"
    if major == 1 and minor <= _NEWEST_FOR_38:
        return f"pytorch-1.{minor}-py38"
    start = f"acpt-pytorch-{major}.{minor}-"
    same = (name for name in names() if name.startswith(start))
    return next((f"{_PREFIX}{name}" for name in same), _NEWEST_IMAGE)


def _for(name: str, platform: Platform) -> Curated | None:
    """The one of two twins that fits the platform's accelerator; None for another's without one."""
    curated = curated_environments.find_by_name(name)
    assert curated is not None
    if curated.accelerator in ("", platform.accelerator):
        return curated
    return curated_environments.find_by_name(curated.twin)
