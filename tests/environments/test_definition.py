"""Environments in job files."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec, NotFound
from torchyard.environments import types
from torchyard.environments.definition import resolve
from torchyard.environments.packages import layers
from torchyard.environments.types import EnvironmentSpec, Platform, platform_python

CPU = Platform("linux", "x86_64", "cpu")


def spec_of(definition: Any) -> EnvironmentSpec:
    return resolve(definition, CPU)


def conda(*dependencies: Any) -> EnvironmentSpec:
    return spec_of({"conda_file": {"channels": ["x"], "dependencies": list(dependencies)}})


@pytest.mark.parametrize(
    "reference",
    [
        "python",
        "Python@latest",
        "azureml:python:1",
        "azureml:python@latest",
        "AzureML-python",
        "azureml://registries/azureml/environments/python/labels/latest",
        "azureml://registries/azureml/environments/AzureML-Python/versions/1",
    ],
)
def test_the_builtin_environment_in_every_spelling(reference: str) -> None:
    spec = spec_of(reference)
    assert (spec.python, spec.requirements) == (platform_python(), ())


@pytest.mark.parametrize("reference", ["pyton", "azureml:sklearn:3", "python:7", "python@stable"])
def test_an_unknown_name_or_version_is_not_found(reference: str) -> None:
    with pytest.raises(NotFound, match=reference):
        spec_of(reference)


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(NotFound) as caught:
        spec_of("azureml:pyhton@latest")
    assert "`python`" in caught.value.hint


def test_an_invalid_reference_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="not a reference"):
        spec_of("a b/c")


def test_requirements_lose_comments_and_order() -> None:
    first = spec_of({"pip_requirements": ["torch==2.13.0  # the one", "", "# no", "Numpy >= 1"]})
    two = spec_of({"pip_requirements": "Numpy >= 1\ntorch==2.13.0\ntorch==2.13.0\n", "name": "x"})
    assert first.requirements == ("Numpy >= 1", "torch==2.13.0")
    assert first.hash == two.hash


@pytest.mark.parametrize(
    ("written", "python"),
    [("3.12", "3.12"), (" 3.11.* ", "3.11"), (">=3.10,<3.13", ">=3.10,<3.13")],
)
def test_a_python_beside_requirements(written: str, python: str) -> None:
    spec = spec_of({"python": written, "pip_requirements": "tqdm\n"})
    assert (spec.python, spec.requirements, spec.is_any_python) == (python, ("tqdm",), False)


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("sklearn", "scikit-learn"),
        ("sklearn==1.5", "scikit-learn"),
        ("cv2", "opencv-python-headless"),
        ("PIL>=9", "pillow"),
        ("yaml", "PyYAML"),
    ],
)
def test_a_module_s_name_gets_the_name_of_its_package(line: str, package: str) -> None:
    for definition in (
        {"pip_requirements": ["numpy", line]},
        {"conda_file": {"dependencies": ["pip", {"pip": ["numpy", line]}]}},
    ):
        with pytest.raises(InvalidSpec, match="is a module") as caught:
            spec_of(definition)
        assert f"`{package}`" in caught.value.hint and caught.value.at[-1] == 1


def test_options_stay_first_and_in_order() -> None:
    spec = spec_of({"pip_requirements": ["b", "--pre", "--extra-index-url https://x/y", "a"]})
    assert spec.options == ("--pre", "--extra-index-url https://x/y")
    assert spec.packages == ("a", "b")


@pytest.mark.parametrize(
    "line", ["-r more.txt", "-e .", "./wheels/a.whl", "a @ file:///tmp/a.whl", "--hash=x", "/a/b"]
)
def test_lines_that_name_files_are_refused(line: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec_of({"pip_requirements": ["six", line]})
    assert caught.value.at == ("pip_requirements", 1)
    assert caught.value.hint


def test_a_requirement_from_a_url_is_kept() -> None:
    lines = ["git+https://host/x.git@main", "a @ https://host/a-1-py3-none-any.whl"]
    assert set(spec_of({"pip_requirements": lines}).packages) == set(lines)


def test_the_hash_covers_content_and_platform_only() -> None:
    spec = spec_of({"pip_requirements": ["six"]})
    versioned = spec_of(
        {"name": "x", "version": "3", "tags": {"a": "b"}, "pip_requirements": ["six"]}
    )
    on_gpu = resolve({"pip_requirements": ["six"]}, Platform("linux", "x86_64", "cuda"))
    assert spec.hash == versioned.hash
    assert len({spec.hash, on_gpu.hash, spec_of({"pip_requirements": ["six==1"]}).hash}) == 3
    by_image = spec_of({"image": f"python:{platform_python()}", "pip_requirements": ["six"]})
    # It names a Python, which stays.
    assert by_image.notices and by_image.python == spec.python and by_image.hash != spec.hash


def test_a_spec_survives_json() -> None:
    spec = spec_of({"image": "python:3.9", "pip_requirements": ["six"]})
    assert types.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("image", "python"),
    [
        ("python:3.11", "3.11"),
        ("python:3.11-slim", "3.11"),
        ("python:3.12.4-slim-bookworm", "3.12"),
        ("docker.io/library/python:3.12", "3.12"),
        ("docker.io/python:3.10@sha256:" + "0" * 64, "3.10"),
        ("python", platform_python()),
        ("python:latest", platform_python()),
        ("mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04", platform_python()),
        ("mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04:latest", platform_python()),
        ("mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.8-cudnn8-ubuntu22.04", platform_python()),
        ("mcr.microsoft.com/azureml/base:0.2.4", platform_python()),
        ("mcr.microsoft.com/azureml/base-gpu", platform_python()),
        ("mcr.microsoft.com/azureml/minimal-ubuntu22.04-py39-cpu-inference:latest", "3.9"),
    ],
)
def test_images_that_mean_plain_python(image: str, python: str) -> None:
    spec = spec_of({"image": image})
    assert spec.python == python
    assert image in spec.notices[0]


@pytest.mark.parametrize(
    "image",
    [
        "ubuntu",
        "me/python:3.11",
        "pypy:3",
    ],
)
def test_any_other_image_is_run_itself(image: str) -> None:
    spec = spec_of({"image": image})
    assert spec.image is not None and spec.image.name == image
    assert (spec.python, spec.requirements) == ("", ())
    assert types.from_json(spec.to_json()) == spec


def test_a_conda_file_wins_over_its_image() -> None:
    image = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"
    document = {"dependencies": ["python=3.9", {"pip": ["six"]}]}
    assert spec_of({"image": image, "conda_file": document}).python == "3.9"
    assert spec_of({"image": "python:3.8", "conda_file": {"dependencies": []}}).python == "3.8"


@pytest.mark.parametrize(
    ("written", "python"),
    [
        ("python=3.11", "3.11"),
        ("python=3.6.2", "3.6.2"),
        ("python==3.8.13", "3.8.13"),
        ("python 3.8", "3.8"),
        ("python=3.9.*", "3.9"),
        ("conda-forge::python=3.10", "3.10"),
        ("python>=3.8,<3.12", ">=3.8,<3.12"),
        ("python=3.8.5=h7579374_1", "3.8.5"),
        ("python", platform_python()),
    ],
)
def test_conda_python(written: str, python: str) -> None:
    assert conda(written, "pip").python == python


@pytest.mark.parametrize("written", ["python=--help", "python=-c", "python>=3.8,<-h", "python=v"])
def test_a_python_is_no_option_of_a_command(written: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        conda(written, "pip")
    assert refused.value.at[-2:] == ("dependencies", 0)


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("numpy", "numpy"),
        ("numpy=1.21", "numpy==1.21.*"),
        ("numpy==1.21.2", "numpy==1.21.2"),
        ("numpy 1.21.*", "numpy==1.21.*"),
        ("numpy>=1.20,<2", "numpy>=1.20,<2"),
        ("numpy=1.21.2=py38_0", "numpy==1.21.2.*"),
        ("pytorch::pytorch=2.1", "torch==2.1.*"),
        ("scikit-learn-intelex=2025.10", "scikit-learn-intelex==2025.10.*"),
        ("pytables>=3.8", "tables>=3.8"),
    ],
)
def test_conda_packages_that_pypi_has_too(written: str, line: str) -> None:
    assert conda("python=3.11", written).requirements == (line,)


def test_a_pinned_pip_of_conda_adds_setuptools() -> None:
    """Packages of that time import `pkg_resources` without depending on setuptools."""
    assert conda("python=3.8", "pip=21.2.4").requirements == ("pip==21.2.4.*", "setuptools<81")
    pinned = conda("python=3.8", "pip=21.2.4", {"pip": ["setuptools==60.0"]})
    assert pinned.requirements == ("pip==21.2.4.*", "setuptools==60.0")
    assert conda("python=3.11", "pip").requirements == ()


def test_a_pip_of_conda_beside_an_old_python_adds_setuptools() -> None:
    """As conda's own did for Python before 3.10; `mlflow` of that time imports `pkg_resources`."""
    assert conda("python=3.6", "pip", {"pip": ["mlflow"]}).requirements == (
        "mlflow",
        "setuptools<81",
    )
    assert conda("python=3.9.7", "pip", {"pip": ["mlflow"]}).requirements[-1] == "setuptools<81"
    assert conda("python=3.10", "pip", {"pip": ["mlflow"]}).requirements == ("mlflow",)
    assert conda("pip", {"pip": ["mlflow"]}).requirements == ("mlflow",)
    by_itself = conda("python=3.6", {"pip": ["mlflow"]})
    assert by_itself.requirements == ("mlflow", "setuptools<81")
    assert conda("python=3.6", "numpy").requirements == ("numpy",)


@pytest.mark.parametrize(
    ("line", "is_added"),
    [
        ("mlflow==1.23.1", True),
        ("mlflow-skinny==1.30.1", True),
        ("mlflow[extras] == 1.28", True),
        ("mlflow==1.*", True),
        ("mlflow==2.22.0", False),
        ("mlflow==10.0", False),
        ("mlflow-export-import==1.2", False),
    ],
)
def test_an_mlflow_that_imports_pkg_resources_finds_it_in_newer_pythons(
    line: str, is_added: bool
) -> None:
    by_pip = conda("python=3.10", "pip", {"pip": [line]}).requirements
    assert ("setuptools<81" in by_pip) is is_added


def test_mlflow_of_conda_finds_pkg_resources_too() -> None:
    requirements_read = conda("python=3.6", "mlflow=1.23.1").requirements
    assert requirements_read == ("mlflow==1.23.1.*", "setuptools<81")


def test_azure_ml_s_sdk_v1_finds_pkg_resources_as_with_conda_s_pip() -> None:
    requirements_read = conda("python=3.8", {"pip": ["azureml-defaults"]}).requirements
    assert requirements_read == ("azureml-defaults", "setuptools<81")
    pinned = conda("python=3.8", {"pip": ["azureml-core==1.61.0", "setuptools==70.0"]}).requirements
    assert pinned == ("azureml-core==1.61.0", "setuptools==70.0")
    with_mlflow = conda("python=3.11", {"pip": ["azureml-mlflow"]}).requirements
    assert with_mlflow == ("azureml-mlflow", "setuptools<81")


@pytest.mark.parametrize(
    ("packages", "is_added"),
    [
        (["scikit-learn=1.2.2", "numpy"], True),
        (["scikit-learn==1.4.1", "numpy>=1.20"], False),
        (["pandas<2", "scipy=1.16"], True),
        (["pandas<=2.1.4"], True),
        (["scikit-learn=1.4"], False),
        (["scikit-learn=1.7.0", "numpy"], False),
        (["scikit-learn=1"], False),
        (["scikit-learn>=1.2"], False),
        (["scikit-learn=1.2.2", {"pip": ["numpy==1.24.0"]}], False),
        # Pip chooses the same on Azure.
        ([{"pip": ["scikit-learn==1.2.2", "numpy"]}], False),
    ],
)
def test_what_was_built_for_numpy_1_gets_it_as_from_conda(
    packages: list[Any], is_added: bool
) -> None:
    spec = conda("python=3.10", *packages)
    assert ("numpy<2" in spec.requirements) is is_added
    assert any("built for NumPy 1" in notice for notice in spec.notices) is is_added


def test_conda_changes_are_noticed() -> None:
    spec = conda("python=3.11", "scikit-learn", "cpuonly", {"pip": ["azureml-defaults", "torch"]})
    assert spec.requirements == ("azureml-defaults", "scikit-learn", "setuptools<81", "torch")
    assert ["scikit-learn" in spec.notices[0], "cpuonly" in spec.notices[1]] == [True, True]


@pytest.mark.parametrize("name", ["cudatoolkit=11.3", "openmpi", "conda-forge::ffmpeg>=4"])
def test_conda_packages_are_refused_by_name_without_py_rattler(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rattler", None)
    with pytest.raises(InvalidSpec) as caught:
        conda("python=3.11", name)
    assert name.split("::")[-1].split("=")[0].split(">")[0] in caught.value.message
    assert "`pip:`" in caught.value.hint
    assert caught.value.at == ("conda_file", "dependencies", 1)


@pytest.mark.parametrize(
    ("definition", "words", "at"),
    [
        ({}, "names no content", ()),
        (7, "neither", ()),
        ({"imgae": "python"}, "`imgae`", ("imgae",)),
        ({"build": {"path": "."}}, "build context", ("build", "path")),
        ({"build": "."}, "must be a mapping", ("build",)),
        ({"build": {}}, "no path", ("build", "path")),
        ({"build": {"path": "local:x", "dockerfile": "D"}}, "dockerfile", ("build", "dockerfile")),
        ({"build": {"path": "local:x"}, "image": "python"}, "be combined", ("image",)),
        ({"image": "--help"}, "not a valid image name", ("image",)),
        ({"image": "two words"}, "not a valid image name", ("image",)),
        ({"image": ""}, "`image`", ("image",)),
        ({"image": "python", "os_type": "windows"}, "windows", ("os_type",)),
        ({"pip_requirements": 3}, "not a list", ("pip_requirements",)),
        ({"pip_requirements": [], "python": 3.1}, "not a version", ("python",)),
        ({"pip_requirements": [], "python": "--help"}, "not a version", ("python",)),
        ({"conda_file": {}, "python": "3.12"}, "alone", ("python",)),
        ({"python": "3.12"}, "names no content", ()),
        ({"pip_requirements": [1]}, "not a string", ("pip_requirements", 0)),
        ({"conda_file": "x.yml"}, "must be a mapping", ("conda_file",)),
        ({"conda_file": {"dependancies": []}}, "dependancies", ("conda_file", "dependancies")),
        ({"conda_file": {"dependencies": [1]}}, "can't be read", ("conda_file", "dependencies", 0)),
        (
            {"conda_file": {"dependencies": ["numpy=1.2|1.3"]}},
            "can't be read",
            ("conda_file", "dependencies", 0),
        ),
        (
            {"conda_file": {"dependencies": [], "variables": {"A": "b"}}},
            "variables",
            ("conda_file", "variables"),
        ),
        ({"conda_file": {}, "pip_requirements": []}, "be combined", ("pip_requirements",)),
    ],
)
def test_bad_definitions(definition: Any, words: str, at: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidSpec, match=words) as caught:
        spec_of(definition)
    assert caught.value.at == at


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("torch=2.13.0", "torch==2.13.0"),
        ("numpy = 2.0", "numpy==2.0"),
        ("ray[tune]=2.9.*", "ray[tune]==2.9.*"),
    ],
)
def test_one_equals_in_a_pip_requirement_gets_the_right_form(line: str, right: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec_of({"pip_requirements": ["six==1.17.0", line]})
    assert caught.value.at == ("pip_requirements", 1)
    assert caught.value.hint == f"write `{right}`: one `=` is how conda pins a version"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("torch=>2.1", "write `torch>=2.1`"),
        ("numpy=~1.2", "write `numpy~=1.2`"),
        ("numpy 2.0", "write `numpy==2.0`"),
        ("torch@2.13", "write `torch==2.13`"),
        ("numpy==2.x", "write `numpy==2.*`"),
        ("pandas~2.0", "write `pandas~=2.0`"),
        ("scikit-learn>1<2", "write `scikit-learn>1,<2`"),
        ("scipy>=1.10 <2", "write `scipy>=1.10,<2`"),
        ("numpy=1.21.2=py38_0", "write `numpy==1.21.2`"),
        ("numpy=1.2,<2", "write `numpy==1.2,<2`"),
        ("pip install torch", "write `torch`"),
        ("torch==2.13.0 torchvision==0.28", "write each package on a line of its own"),
        ("numpy=latest", "for example `torch==2.13.0`, or `numpy>=1.26,<3`"),
        ("numpy==", "for example `torch==2.13.0`, or `numpy>=1.26,<3`"),
        ("numpy =~ 1.26", "write `numpy ~= 1.26`"),
        ("numpy==1.26=py311", "write `numpy==1.26`"),
        ("numpy>1,<3,=2.0", "write `numpy>1,<3,==2.0`"),
        ("numpy~=2", "write `numpy~=2.0`"),
        ("numpy torch", "write each package on a line of its own"),
        ("numpy ???", "for example `torch==2.13.0`, or `numpy>=1.26,<3`"),
    ],
)
def test_what_is_not_a_pip_requirement_gets_the_likely_form(line: str, hint: str) -> None:
    for definition in (
        {"pip_requirements": [line]},
        {"conda_file": {"dependencies": ["python=3.11", {"pip": [line]}]}},
    ):
        with pytest.raises(InvalidSpec, match="is not a pip requirement") as caught:
            spec_of(definition)
        assert caught.value.hint == hint and caught.value.at[-1] == 0


def test_every_faulty_requirement_is_told_at_its_own_line() -> None:
    lines = ["torch=2.13", "# fine", "numpy (>=2)", "pip install scipy", "idna", "-r other.txt"]
    for written, at in (
        ({"pip_requirements": lines}, ("pip_requirements",)),
        ({"pip_requirements": "\n".join(lines)}, ("pip_requirements",)),
        (
            {"conda_file": {"dependencies": ["python=3.11", {"pip": lines}]}},
            ("conda_file", "dependencies", 1, "pip"),
        ),
    ):
        with pytest.raises(InvalidSpec) as caught:
            spec_of(written)
        errors = (caught.value, *caught.value.others)
        assert [error.at for error in errors] == [(*at, 0), (*at, 3), (*at, 5)]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("requirements.txt", "a list of packages is `environment: {pip_requirements: "),
        ("./env/conda.yml", "a conda file is `environment: {conda_file: ./env/conda.yml}`, "),
    ],
)
def test_a_file_in_an_environments_place_gets_its_key(name: str, hint: str) -> None:
    with pytest.raises((InvalidSpec, NotFound)) as caught:
        spec_of(name)
    assert caught.value.hint.startswith(hint)


def test_keys_of_a_conda_file_are_told_as_that() -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec_of({"dependencies": ["python=3.11"]})
    assert "under `conda_file`" in caught.value.hint


def test_the_marker_stays_in_the_right_form() -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec_of({"pip_requirements": ["numpy=2.0; python_version<'3.12'"]})
    assert caught.value.hint.startswith("write `numpy==2.0; python_version<'3.12'`: ")


def test_two_equals_a_url_and_a_marker_are_no_mistake() -> None:
    lines = ["a==1", "b>=2", "c===3", "d~=4.0", "e!=5", "f; python_version=='3.11'",
             "h==1 --hash=sha256:ab", "i[x]", "j@https://host/j.whl", "k>=1,<2", "l>=1,",
             "g @ https://host/g.whl#sha256=ab"]  # fmt: skip
    assert set(spec_of({"pip_requirements": lines}).requirements) == set(lines)


def test_what_a_conda_file_says_and_nothing_here_does_is_told() -> None:
    document = {
        "prefix": "/home/ann/miniconda3/envs/train",
        "dependencies": ["python=3.9.7=h60c2a47_0_cpython", "numpy=1.21.2=py38_0"],
    }
    spec = spec_of({"conda_file": document})
    assert [notice for notice in spec.notices if "build `" in notice or "prefix" in notice] == [
        "build `h60c2a47_0_cpython` of conda package `python` is left out: only conda's channels "
        "have builds",
        "build `py38_0` of conda package `numpy` is left out: only conda's channels have builds",
        "`prefix` of the conda file has no effect",
    ]
    assert spec.python == "3.9.7"


def test_further_indexes_of_pip_are_kept() -> None:
    line = "--extra-index-url https://download.pytorch.org/whl/cpu"
    spec = spec_of({"conda_file": {"dependencies": ["python=3.11", {"pip": [line, "six"]}]}})
    assert spec.options == (line,)


def test_the_notice_of_a_layer_names_a_version_that_the_user_wrote_alone() -> None:
    lines = ["horovod==0.19.5"]
    _, _, notices = layers.split(lines)
    _, _, unnamed = layers.split(lines, lines)
    reason = (
        "does not build here (its last release is from 2023): torchyard's layer over "
        "torch.distributed takes its place"
    )
    assert notices == [f"package `horovod==0.19.5` {reason}"]
    assert unnamed == [f"package `horovod` {reason}"]
