"""References to environments that exist by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec, NotFound
from torchyard.environments import definition
from torchyard.environments.names import curated_environments, published, substitutes
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.types import (
    EnvironmentAsset,
    Platform,
    from_json,
    platform_python,
)

LINUX = Platform("linux", "x86_64", "cpu")
CUDA = Platform("linux", "x86_64", "cuda")


@pytest.mark.parametrize(
    "reference",
    [
        "azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
        "azureml://registries/azureml/environments/sklearn-1.5/versions/12",
        "azureml:AzureML-sklearn-1.5@latest",
        "AzureML-sklearn-1.5",
        "azureml-SKLEARN-1.5:3",
    ],
)
def test_a_published_name_becomes_a_curated_environment_with_a_notice(reference: str) -> None:
    spec = definition.resolve(reference, LINUX)
    assert (spec.python, "scikit-learn==1.5.2" in spec.packages) == ("3.10", True)
    assert reference in spec.notices[0] and "numpy==1.22.4" in spec.notices[0]
    assert spec.ref == "sklearn-1.5:3"


def test_steps_that_are_python_functions_have_their_environment() -> None:
    reference = "azureml://registries/azureml/environments/mldesigner-minimal/labels/latest"
    spec = definition.resolve(reference, LINUX)
    assert spec.packages == ("mldesigner==0.1.0b23",)


@pytest.mark.parametrize(
    "reference",
    ["python", "azureml:Python@latest", "python:1", "sklearn-1.5", " azureml:sklearn-1.5:3 "],
)
def test_a_curated_name_needs_no_notice(reference: str) -> None:
    assert definition.resolve(reference, LINUX).notices == ()


@pytest.mark.parametrize(
    ("reference", "curated_name"),
    [
        ("AzureML-ACPT-pytorch-1.12-py39-cuda11.6-gpu@latest", "acpt-pytorch-1.12-cpu"),
        ("azureml-acpt-pytorch-2.2-cuda12.1", "acpt-pytorch-2.2-cpu"),
        ("azureml:AzureML-acpt-pytorch-2.8-cuda12.6:1", "acpt-pytorch-2.13-cpu"),
        ("acpt-pytorch-2.8-cuda12.6@latest", "acpt-pytorch-2.13-cpu"),
        ("AzureML-PyTorch-1.6-GPU", "pytorch-1.6-py38"),
        ("azureml-pytorch-1.0-cpu", "pytorch-1.4-py38"),
        ("AzureML-pytorch-1.10-ubuntu18.04-py38-cuda11-gpu:3", "pytorch-1.10-py38"),
        ("AzureML-DeepSpeed-0.3-GPU", "acpt-pytorch-2.13-cpu"),
        ("AzureML-sklearn-0.24-ubuntu18.04-py37-cpu", "sklearn-0.24-py38"),
        ("AzureML-sklearn-1.0", "sklearn-1.1"),
        ("AzureML-Scikit-Learn-0.20.3", "sklearn-0.24-py38"),
        ("AzureML-lightgbm-3.2-ubuntu18.04-py37-cpu@latest", "lightgbm-3.3"),
        ("AzureML-TensorFlow-2.3-CPU", "tensorflow-2.3-py38"),
        ("AzureML-tensorflow-2.4-ubuntu18.04-py37-cuda11-gpu", "tensorflow-2.4-py38"),
        ("AzureML-tensorflow-2.9-cuda11", "tensorflow-2.9-py310"),
        ("AzureML-PyTorch-1.4-GPU", "pytorch-1.4-py38"),
        ("AzureML-pytorch-1.8-ubuntu18.04-py37-cuda11-gpu", "pytorch-1.8-py38"),
        ("azureml-tensorflow-2.11-cuda11", "tensorflow-2.11-py310"),
        ("AzureML-Minimal", "minimal-py310"),
        ("AzureML-Tutorial", "sklearn-1.5"),
        ("lightgbm-3.2-ubuntu18.04-py37-cpu", "lightgbm-3.3"),
        ("pytorch-1.10-ubuntu18.04-py38-cuda11-gpu:3", "pytorch-1.10-py38"),
        (
            "azureml://registries/azureml/environments/tensorflow-2.16-cuda11/labels/latest",
            "tensorflow-2.16-cuda12",
        ),
    ],
)
def test_a_substitute_for_a_published_name_has_a_notice(reference: str, curated_name: str) -> None:
    spec = definition.resolve(reference, LINUX)
    curated = curated_environments.find_by_name(curated_name)
    assert curated is not None and spec.ref == f"{curated_name}:{curated.version}"
    assert reference in spec.notices[0] and f"`{curated_name}`" in spec.notices[0]


def test_a_node_with_cuda_gets_the_twin() -> None:
    image = definition.resolve({"image": "pytorch/pytorch:latest"}, CUDA)
    assert any("nvidia-cublas" in line for line in image.packages)
    spec = definition.resolve("AzureML-ACPT-pytorch-1.12-py38-cuda11.6-gpu", CUDA)
    twin = curated_environments.find_by_name("acpt-pytorch-2.13-cuda13.0")
    assert twin is not None and spec.ref == f"{twin.name}:{twin.version}"


@pytest.mark.parametrize(
    ("reference", "torch"),
    [
        ("AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu", "1.13.1"),
        ("azureml:AzureML-acpt-pytorch-2.1-cuda12.1@latest", "2.1.2"),
        ("acpt-pytorch-2.2-cuda12.1", "2.2.2"),
        ("AzureML-acpt-pytorch-2.2-cuda12.1-profiler", "2.2.2"),
    ],
)
def test_azure_container_for_pytorch_has_its_torch_with_a_gpu_and_without(
    reference: str, torch: str
) -> None:
    spec = definition.resolve(reference, CUDA)
    assert f"torch=={torch}" in spec.packages and not spec.job_variables
    cpu = definition.resolve(reference, LINUX)
    minor = torch.rpartition(".")[0]
    assert cpu.ref.startswith(f"acpt-pytorch-{minor}-cpu:") and cpu.notices
    assert f"torch=={torch}" in cpu.packages and not cpu.job_variables


@pytest.mark.parametrize(
    "written",
    [
        "azureml:AzureML-acpt-pytorch-2.8-cuda12.6@latest",
        "azureml://registries/azureml/environments/acpt-pytorch-2.8-cuda12.6/labels/latest",
        {"image": "mcr.microsoft.com/azureml/curated/acpt-pytorch-2.8-cuda12.6:latest"},
        {"image": "mcr.microsoft.com/aifx/acpt/stable-ubuntu2204-cu126-py310-torch280"},
        {"image": "pytorch/pytorch:2.8.0-cuda12.6-cudnn9-runtime"},
    ],
)
def test_the_label_of_most_examples_is_torch_2_8_on_nvidias_gpus_and_2_13_elsewhere(
    written: str | dict[str, str],
) -> None:
    requested = written if isinstance(written, str) else written["image"]
    rocm = Platform("linux", "x86_64", "rocm")
    for platform, torch in ((CUDA, "2.8.0"), (LINUX, "2.13.0"), (rocm, "2.13.0")):
        spec = definition.resolve(written, platform)
        assert f"torch=={torch}" in spec.packages
        place = f"`acpt-pytorch-{torch.rpartition('.')[0]}-"
        assert requested in spec.notices[0] and place in spec.notices[0]


def test_the_newest_image_is_the_newest_torch_with_a_gpu_too() -> None:
    for image in ("pytorch/pytorch:latest", "nvcr.io/nvidia/pytorch:25.09-py3"):
        assert "torch==2.13.0" in definition.resolve({"image": image}, CUDA).packages


def test_a_spec_keeps_the_name_that_was_written_where_that_is_anothers() -> None:
    written = "azureml:AzureML-acpt-pytorch-2.8-cuda12.6@latest"
    spec = definition.resolve(written, LINUX)
    assert spec.requested == "AzureML-acpt-pytorch-2.8-cuda12.6"
    assert from_json(spec.to_json()) == replace(spec, job_variables=())
    own = definition.resolve("AzureML-sklearn-1.5", LINUX)
    assert (own.requested, own.ref.partition(":")[0]) == ("AzureML-sklearn-1.5", "sklearn-1.5")
    assert definition.resolve("acpt-pytorch-2.13-cpu", LINUX).requested == ""


@pytest.mark.parametrize(
    "reference",
    [
        "acpt-pytorch-2.0-cuda11.7",
        "AzureML-acpt-pytorch-2.0-cuda11.7@latest",
        {"image": "mcr.microsoft.com/azureml/curated/acpt-pytorch-2.0-cuda11.7:latest"},
    ],
)
def test_a_name_with_a_torch_for_gpus_is_itself_on_a_gpu_alone(
    reference: str | dict[str, str],
) -> None:
    here, there = (definition.resolve(reference, platform) for platform in (LINUX, CUDA))
    assert not [line for line in here.packages if line.startswith("nvidia-")]
    assert "torch==2.0.1" in here.packages and "torch==2.0.1" in there.packages
    assert "nvidia-cublas-cu11==11.10.3.66" in there.packages
    assert here.hash != there.hash and not here.job_variables and not there.job_variables


def test_a_curated_environment_names_its_layers_in_one_notice() -> None:
    (notice,) = definition.resolve("acpt-pytorch-2.13-cpu", LINUX).notices
    listed = notice.partition("torchyard's own layers: ")[2].split(", ")
    assert {"horovod", "nebulaml", "torch-ort", "torchyard-train"} <= set(listed)


@pytest.mark.parametrize(
    ("reference", "pythons", "python", "package"),
    [
        ("AzureML-PyTorch-1.3-CPU", ("3.7",), "3.7", "torch==1.3.1"),
        ("AzureML-PyTorch-1.3-CPU", ("3.11",), "3.8", "torch==1.4.0"),
        ("AzureML-TensorFlow-1.12-CPU", ("3.6", "3.7"), "3.6", "tensorflow==1.12.3"),
        ("AzureML-TensorFlow-1.12-CPU", ("3.7",), "3.7", "tensorflow==1.13.2"),
        ("AzureML-TensorFlow-2.0-GPU", ("3.7",), "3.7", "tensorflow==2.0.4"),
        ("AzureML-TensorFlow-2.0-GPU", (), "3.8", "tensorflow==2.2.3"),
    ],
)
def test_the_nearest_version_is_the_one_whose_python_can_be_had(
    reference: str, pythons: tuple[str, ...], python: str, package: str
) -> None:
    spec = definition.resolve(reference, replace(LINUX, pythons=pythons))
    assert spec.python == python and package in spec.packages
    # What a job keeps is the environment itself.
    assert definition.resolve(spec.ref, LINUX).hash == spec.hash


def test_tensorflow_1_is_refused_without_its_python() -> None:
    with pytest.raises(NotFound, match=r"Python 3\.7 or 3\.6"):
        definition.resolve("AzureML-TensorFlow-1.12-CPU", LINUX)


def test_every_variant_has_its_versions() -> None:
    for variant in curated_environments.variants():
        assert all("==" in line for line in variant.requirements), variant.name
        names = [line.partition("==")[0] for line in variant.requirements]
        assert len(names) == len(set(names)), variant.name


def test_every_published_name_becomes_a_curated_environment() -> None:
    names = published.names()
    assert len(names) == len({name.lower() for name in names}) > 60
    for name in names:
        platform = replace(LINUX, pythons=("3.6", "3.7"))
        assert definition.resolve(f"AzureML-{name}", platform).ref, name


@pytest.mark.parametrize(
    ("reference", "suggestion"),
    [
        ("acpt-pytorch-2.31-cpu", "acpt-pytorch-2.13-cpu"),
        ("AzureML-acpt-pytorch-2.31-cpu@latest", "AzureML-acpt-pytorch-2.13-cpu"),
        ("AzureML-acpt-pytorch-2.8-cuda126", "AzureML-acpt-pytorch-2.8-cuda12.6"),
        ("azureml://registries/azureml/environments/sklearn-1.6/labels/latest", "sklearn-1.5"),
        ("AzureML-PyTorch-1.61-GPU", "AzureML-PyTorch-1.6-GPU"),
        ("pytorch-1.99-ubuntu18.04-py37-cuda11-gpu", "pytorch-1.9-ubuntu18.04-py37-cuda11-gpu"),
    ],
)
def test_a_name_that_azure_never_published_is_no_substitute(
    reference: str, suggestion: str
) -> None:
    with pytest.raises(NotFound, match="does not exist") as refused:
        definition.resolve(reference, LINUX)
    assert f"did you mean `{suggestion}`?" in refused.value.hint


@pytest.mark.parametrize(
    ("tag", "torch"),
    [
        ("1.6.0-cuda10.1-cudnn7-devel", "torch==1.6.0"),
        ("1.8.1-cuda11.1-cudnn8-devel", "torch==1.8.1"),
        ("1.3-cuda10.1-cudnn7-runtime", "torch==1.4.0"),  # without a Python 3.7
        ("1.4-cuda10.1-cudnn7-runtime", "torch==1.4.0"),
        ("1.13.1-cuda11.6-cudnn8-runtime", "torch==1.13.1"),
        ("1.13-cuda11.6", "torch==1.13.1"),
        ("2.2.2-cuda12.1-cudnn8-runtime", "torch==2.2.2"),
        ("2.0.0-cuda11.7-cudnn8-devel", "torch==2.0.1"),
        ("2.8.0-cuda12.6-cudnn9-runtime", "torch==2.13.0"),
        ("latest", "torch==2.13.0"),
    ],
)
def test_the_tag_of_pytorchs_image_decides_the_version(tag: str, torch: str) -> None:
    if tag.startswith("1.3-"):
        image, python = {"image": f"pytorch/pytorch:{tag}"}, replace(LINUX, pythons=("3.7",))
        assert "torch==1.3.1" in definition.resolve(image, python).packages
    assert torch in definition.resolve({"image": f"pytorch/pytorch:{tag}"}, LINUX).packages


def test_sdk_v1_is_in_what_takes_the_place_of_azures_minimal_environment() -> None:
    spec = definition.resolve("AzureML-Minimal", LINUX)
    names = {line.partition("==")[0] for line in spec.packages}
    assert {"azureml-core", "azureml-defaults", "azureml-dataset-runtime"} <= names


# Of its `conda_dependencies.yaml`, without the lower bounds against vulnerabilities.
AZURES_SKLEARN = (
    "pandas", "scipy", "numpy", "scikit-learn-intelex", "azureml-core", "azureml-defaults",
    "azureml-inference-server-http", "azureml-mlflow", "azureml-telemetry", "scikit-learn",
    "joblib", "py-spy", "debugpy", "ipykernel", "tensorboard", "psutil", "matplotlib", "tqdm",
    "py-cpuinfo", "torch-tb-profiler", "starlette", "cryptography", "pyarrow",
)  # fmt: skip


def test_sklearn_holds_what_azures_own_file_lists() -> None:
    spec = definition.resolve("AzureML-sklearn-1.5", LINUX)
    versions = dict(line.split("==") for line in spec.packages)
    assert set(AZURES_SKLEARN) <= set(versions)
    assert spec.python == "3.10" and versions["numpy"].startswith("1.22.")


@pytest.mark.parametrize(
    ("image", "curated_name"),
    [
        (
            "mcr.microsoft.com/azureml/curated/acpt-pytorch-1.11-py38-cuda11.3-gpu:latest",
            "acpt-pytorch-1.11-cpu",
        ),
        (
            "mcr.microsoft.com/aifx/acpt/stable-ubuntu2004-cu121-py310-torch222",
            "acpt-pytorch-2.2-cpu",
        ),
        ("mcr.microsoft.com/azureml/curated/tensorflow-2.12-cuda11:latest", "tensorflow-2.11"),
        (
            "mcr.microsoft.com/aifx/acpt/stable-ubuntu2204-cu124-py310-torch251:biweekly.202505.1",
            "acpt-pytorch-2.13-cpu",
        ),
        ("nvcr.io/nvidia/pytorch:22.02-py3", "acpt-pytorch-2.13-cpu"),
        ("pytorch/pytorch:latest", "acpt-pytorch-2.13-cpu"),
    ],
)
def test_an_image_that_carries_a_published_environment(image: str, curated_name: str) -> None:
    spec = definition.resolve({"image": image}, LINUX)
    assert image in spec.notices[0] and f"`{curated_name}" in spec.notices[0]
    assert spec.packages


@pytest.mark.parametrize(
    "written",
    [
        "AzureML-tensorflow-2.16-cuda12@latest",
        "AzureML-tensorflow-2.16-cuda11@latest",
        {"image": "mcr.microsoft.com/azureml/curated/tensorflow-2.16-cuda12:latest"},
    ],
)
def test_tensorflow_comes_with_keras_2_as_azures_does(written: str | dict[str, str]) -> None:
    spec = definition.resolve(written, LINUX)
    assert spec.variables == (("TF_USE_LEGACY_KERAS", "1"),)
    assert "tf-keras==2.16.0" in spec.packages


def test_a_name_of_an_older_tensorflow_has_numpy_of_its_time() -> None:
    """Its scripts write `np.float` and `tf.compat.v1.layers`, which later ones have no more."""
    spec = definition.resolve("azureml-tensorflow-2.11-cuda11", LINUX)
    versions = dict(line.split("==") for line in spec.packages)
    assert versions["tensorflow"].startswith("2.11.") and versions["keras"].startswith("2.11.")
    assert versions["numpy"].startswith("1.23.")


_WORKSPACE = (
    "subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/"
    "Microsoft.MachineLearningServices/workspaces/default"
)


@pytest.mark.parametrize(
    ("reference", "ref"),
    [
        (f"azureml:/{_WORKSPACE}/environments/mine/versions/1", "mine:1"),
        (f"/{_WORKSPACE}/environments/mine/versions/2", "mine:2"),
        (f"azureml://{_WORKSPACE}/environments/mine/labels/latest", "mine:2"),
        (f"azureml:/{_WORKSPACE.lower()}/environments/mine", "mine:2"),
        (f"azureml:/{_WORKSPACE}/environments/AzureML-sklearn-1.5/versions/1", "sklearn-1.5:3"),
        (f"azureml:/{_WORKSPACE}/environments/AZUREML-SKLEARN-1.5/labels/latest", "sklearn-1.5:3"),
        ("azureml://locations/eastus/workspaces/0-0/environments/mine/versions/1", "mine:1"),
        ("AzureML:python@Latest", "python:1"),
        ("azureml://registries/azureml/environments/sklearn-1.5", "sklearn-1.5:3"),
        ("azureml://registries/AzureML/environments/Sklearn-1.5/labels/latest", "sklearn-1.5:3"),
        ("AZUREML-Acpt-PyTorch-2.13-CPU@latest", "acpt-pytorch-2.13-cpu:4"),
    ],
)
def test_every_form_of_reference(reference: str, ref: str) -> None:
    assert definition.resolve(reference, LINUX, owned=_owned).ref == ref


def test_an_id_of_another_workspace() -> None:
    reference = f"azureml:/{_WORKSPACE}s/environments/mine/versions/1"
    with pytest.raises(NotFound, match="`defaults`, and this is workspace `default`") as refused:
        definition.resolve(reference, LINUX, ("environment",), _owned)
    assert "azureml:mine:1" in refused.value.hint and refused.value.at == ("environment",)


@pytest.mark.parametrize(
    ("requested", "becomes", "instead"),
    [
        ("AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu", "`acpt-pytorch-1.13-cpu:2`",
         "environment: azureml:acpt-pytorch-1.13-cpu:2"),
        ("azureml:AzureML-sklearn-1.5:4", "`sklearn-1.5:3`", "environment: azureml:sklearn-1.5:3"),
        ({"image": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"}, "own Python",
         f"image: python:{platform_python()}"),
        ({"image": "mcr.microsoft.com/azureml/minimal-ubuntu22.04-py39-cpu-inference:latest"},
         "Python 3.9", "image: python:3.9"),
        ({"image": "mcr.microsoft.com/azureml/curated/sklearn-1.0:12", "conda_file": {}},
         "`sklearn-1.1:3`", "environment: azureml:sklearn-1.1:3"),
    ],
)  # fmt: skip
def test_a_substitute_can_be_refused(requested: Any, becomes: str, instead: str) -> None:
    definition.resolve(requested, LINUX)
    with pytest.raises(InvalidSpec, match="is not run here") as refused:
        definition.resolve(requested, LINUX, policy=substitutes.refusing_in("vision"))
    image = requested if isinstance(requested, str) else requested["image"]
    assert f"`{image}`" in refused.value.message and becomes in refused.value.message
    assert f"`{instead}`" in refused.value.hint
    assert "yard workspace update -n vision --allow-substitutes true" in refused.value.hint
    assert refused.value.code == "substitute_refused"
    assert refused.value.at == (() if isinstance(requested, str) else ("image",))


@pytest.mark.parametrize(
    "requested",
    [
        "python", "sklearn-1.5", "AzureML-sklearn-1.5@latest",
        "azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
        {"image": "python:3.11-slim"}, {"pip_requirements": ["six"]},
    ],
)  # fmt: skip
def test_an_exact_name_is_not_a_substitute(requested: Any) -> None:
    policy = substitutes.refusing_in("vision")
    assert definition.resolve(requested, LINUX, policy=policy) == definition.resolve(
        requested, LINUX
    )


def test_the_policy_applies_to_registered_definitions() -> None:
    def owned(name: str) -> Sequence[EnvironmentAsset]:
        return [_asset("1", image="mcr.microsoft.com/azureml/base:0.2.4")] if name == "mine" else []

    with pytest.raises(InvalidSpec, match="azureml/base"):
        definition.resolve("mine", LINUX, owned=owned, policy=substitutes.refusing_in("vision"))


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("sklaern-1.5", "did you mean `sklearn-1.5`?"),
        ("azureml://registries/mine/environments/sklearn-1.5/labels/latest", "`sklearn-1.5`"),
        ("sklearn-1.5@prod", "sklearn-1.5@latest"),
        ("python:2", "python@latest"),
        ("my-own-thing:4", "pip_requirements"),
        ("sklearn-regression-pkg@latest", "pip_requirements"),
        ("tutorial", "pip_requirements"),
        ("python-3.8-vision", "pip_requirements"),
        ("azureml://registries/azureml/environments/responsibleai-tabular/versions/28", "pip"),
        ("AzureML-AutoML@latest", "pip_requirements"),
    ],
)
def test_any_other_name_is_refused_with_the_nearest(reference: str, hint: str) -> None:
    with pytest.raises(NotFound) as refused:
        definition.resolve(reference, LINUX, ("environment",))
    assert (hint in refused.value.hint, refused.value.at) == (True, ("environment",))


def test_an_invalid_reference_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        definition.resolve("< your environment name >", LINUX)


def _asset(version: str, archived: bool = False, **definition: Any) -> EnvironmentAsset:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return EnvironmentAsset("default", "mine", version, definition, now, "me", archived=archived)


def _owned(name: str) -> Sequence[EnvironmentAsset]:
    """Newest first."""
    three = _asset("3", archived=True, pip_requirements=["six==1.17.0"])
    two = _asset("2", image="python:3.11", conda_file={"dependencies": ["numpy=2.1"]})
    return [three, two, _asset("1", pip_requirements=["six==1.15.0"])] if name == "mine" else []


@pytest.mark.parametrize(
    ("reference", "ref", "packages"),
    [
        ("mine", "mine:2", ("numpy==2.1.*",)),
        ("azureml:mine@latest", "mine:2", ("numpy==2.1.*",)),
        ("mine:1", "mine:1", ("six==1.15.0",)),
        ("azureml:mine:3", "mine:3", ("six==1.17.0",)),
    ],
)
def test_the_workspaces_own(reference: str, ref: str, packages: tuple[str, ...]) -> None:
    spec = definition.resolve(reference, LINUX, owned=_owned)
    assert (spec.ref, spec.packages) == (ref, packages)


def test_a_version_that_is_not_there() -> None:
    with pytest.raises(NotFound, match="no version `7`") as refused:
        definition.resolve("mine:7", LINUX, ("environment",), _owned)
    assert "1, 2, 3" in refused.value.hint and refused.value.at == ("environment",)


@pytest.mark.parametrize("curated", curated_environments.every(), ids=lambda curated: curated.name)
def test_a_curated_environment_is_whole(curated: Curated) -> None:
    assert curated.description and curated.version.isdecimal()
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in curated.requirements)
    if curated.twin:
        twin = curated_environments.find_by_name(curated.twin)
        assert twin is not None and twin.twin == curated.name


@pytest.mark.parametrize(
    ("requested", "reads_whole_models"),
    [
        ("azureml-acpt-pytorch-2.2-cuda12.1", False),
        ("AzureML-ACPT-pytorch-1.12-py39-cuda11.6-gpu@latest", True),
        ({"image": "mcr.microsoft.com/azureml/curated/acpt-pytorch-1.12-cuda11.6:latest"}, True),
        ({"image": "mcr.microsoft.com/aifx/acpt/stable-ubuntu2004-cu117-py38-torch201"}, False),
        ({"image": "mcr.microsoft.com/aifx/acpt/stable-ubuntu2004-cu121-py310-torch251"}, True),
        ({"image": "mcr.microsoft.com/aifx/acpt/stable-ubuntu2204-cu126-py310-torch280"}, False),
        ({"image": "mcr.microsoft.com/aifx/acpt/stable-ubuntu2204-cu126-py310-torch2.8.0"}, False),
        ("azureml-acpt-pytorch-2.8-cuda12.6", False),
        ("AzureML-pytorch-1.10-ubuntu18.04-py38-cuda11-gpu", False),
        ("acpt-pytorch-2.13-cpu", False),
    ],
)
def test_torch_of_an_old_name_reads_models_as_it_did(
    requested: str | dict[str, str], reads_whole_models: bool
) -> None:
    spec = definition.resolve(requested, CUDA)
    assert (published.WHOLE_MODELS in spec.job_variables) == reads_whole_models
    assert spec.hash == replace(spec, job_variables=()).hash
    notices = [notice for notice in spec.notices if "`torch.load` reads whole models" in notice]
    assert bool(notices) == reads_whole_models
