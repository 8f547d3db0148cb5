"""Environments that exist by name.

Owns: the built-in environments, and finding one by its reference.
Leaves: the forms of references to base/refs, inline definitions to definition.py.
Always: a name is found in any case, with or without `azureml:` and `AzureML-`; what takes the
place of a published environment says so in a notice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.base import refs
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound, nearest
from torchyard.base.refs import Ref


@dataclass(frozen=True)
class BuiltIn:
    """An environment of the package's own; `python` empty means the platform's.

    `stands_for_published`: Azure ML publishes one of this name with more in it, and in many
    versions; ours takes the place of each.
    """

    name: str
    description: str
    version: str = "1"
    python: str = ""
    requirements: tuple[str, ...] = field(default=())
    stands_for_published: bool = False


# What nearly every script of the published environments imports besides its own framework.
_COMMON = (
    "matplotlib==3.9.4",
    "mlflow-skinny==2.22.1",
    "pandas==2.2.3",
    "psutil==7.0.0",
    "tqdm==4.67.1",
)

BUILT_IN = (
    BuiltIn("python", "The platform's own Python with pip and nothing else"),
    BuiltIn(
        "sklearn-1.5",
        "scikit-learn 1.5 with pandas, matplotlib and MLflow",
        python="3.11",
        requirements=("numpy==1.26.4", "scikit-learn==1.5.2", "scipy==1.14.1", *_COMMON),
        stands_for_published=True,
    ),
    BuiltIn(
        "sklearn-1.1",
        "scikit-learn 1.1 with pandas, matplotlib and MLflow",
        python="3.11",
        requirements=("numpy==1.26.4", "scikit-learn==1.1.3", "scipy==1.11.4", *_COMMON),
        stands_for_published=True,
    ),
    BuiltIn(
        "lightgbm-3.3",
        "LightGBM 3.3 with scikit-learn, pandas, matplotlib and MLflow",
        python="3.11",
        requirements=(
            "lightgbm==3.3.5",
            "numpy==1.26.4",
            "scikit-learn==1.1.3",
            "scipy==1.11.4",
            *_COMMON,
        ),
        stands_for_published=True,
    ),
    BuiltIn(
        "tensorflow-2.16-cuda12",
        "TensorFlow 2.16 with pandas, matplotlib and MLflow",
        python="3.11",
        requirements=("numpy==1.26.4", "tensorflow==2.16.2", *_COMMON),
        stands_for_published=True,
    ),
    BuiltIn(
        "acpt-pytorch-2.8-cuda12.6",
        "PyTorch 2.8 with torchvision, torchaudio, transformers, tensorboard and MLflow",
        python="3.11",
        requirements=(
            "numpy==1.26.4",
            "tensorboard==2.19.0",
            "torch==2.8.0",
            "torchaudio==2.8.0",
            "torchvision==0.23.0",
            "transformers==4.55.4",
            *_COMMON,
        ),
        stands_for_published=True,
    ),
)

_PREFIX = "azureml-"
_REGISTRY = "azureml"
_HINT = "name `python@latest`, or give `conda_file` or `pip_requirements`"


@dataclass(frozen=True)
class Found:
    """What a reference names; `notice` is empty when it is just that."""

    environment: BuiltIn
    notice: str = ""


def find(reference: str, at: tuple[str | int, ...]) -> Found:
    """The environment that `reference` names; `at` is its place in the document.

    Raises:
        InvalidSpec: it is no reference at all.
        NotFound: no environment has that name or version.
    """
    try:
        ref = refs.parse(reference.strip())
    except InvalidInput as error:
        raise InvalidSpec(error.message, error.hint, at=at) from error
    bare = ref.name[len(_PREFIX) :] if ref.name.lower().startswith(_PREFIX) else ref.name
    in_reach = ref.registry.lower() in ("", _REGISTRY)
    for known in BUILT_IN:
        if in_reach and known.name.lower() == bare.lower():
            return _version(known, ref, reference, at)
    guess = nearest(bare, [known.name for known in BUILT_IN])
    hint = f"did you mean `{guess}`? Otherwise {_HINT}" if guess else _HINT
    where = "" if in_reach else f": the registry `{ref.registry}` is not reached from here"
    raise NotFound(f"environment `{reference}` does not exist{where}", hint, at=at)


def _version(known: BuiltIn, ref: Ref, reference: str, at: tuple[str | int, ...]) -> Found:
    if ref.label.lower() in ("", "latest"):
        if known.stands_for_published:
            packages = ", ".join(known.requirements[:2])
            return Found(
                known,
                f"environment `{reference}` is torchyard's own of that name: "
                f"Python {known.python}, {packages} and {len(known.requirements) - 2} more",
            )
        if ref.version in ("", known.version):
            return Found(known)
    raise NotFound(
        f"environment `{reference}` does not exist: `{known.name}` has version "
        f"{known.version} and label `latest`",
        f"write `{known.name}@latest`",
        at=at,
    )
