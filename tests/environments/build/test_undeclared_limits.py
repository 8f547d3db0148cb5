"""Packages that need newer or older versions of others than their metadata say."""

from __future__ import annotations

from typing import Any

import pytest

from environments import wheels
from environments.conftest import Machine, MakeEnvironments
from torchyard.environments.packages import lock, undeclared_limits


@pytest.mark.parametrize(
    ("plugin", "skinny", "limits"),
    [
        ("1.55.0", "1.30.1", ("azureml-mlflow<1.55",)),
        ("1.62.0.post6", "2.7.1", ("azureml-mlflow<1.55",)),
        ("1.62.0.post6", "2.8.0", ()),
        ("1.54.0", "1.30.1", ()),
        ("1.48.0", "1.23.1", ()),
        ("1.55.0", "", ()),
    ],
)
def test_azures_plugin_needs_a_client_with_asynchronous_logging(
    plugin: str, skinny: str, limits: tuple[str, ...]
) -> None:
    versions = {"azureml-mlflow": plugin} | ({"mlflow-skinny": skinny} if skinny else {})
    assert tuple(undeclared_limits.of(versions)) == limits


@pytest.mark.parametrize(
    ("mlflow", "sqlalchemy", "limits"),
    [
        ("2.22.5", "2.1.0", ("sqlalchemy<2.1",)),
        ("3.8.1", "2.1.9", ("sqlalchemy<2.1",)),
        ("3.9.0", "2.1.9", ()),
        ("2.22.5", "2.0.58", ()),
        ("", "2.1.9", ()),
    ],
)
def test_mlflow_before_3_9_needs_sqlalchemy_2_0(
    mlflow: str, sqlalchemy: str, limits: tuple[str, ...]
) -> None:
    versions = {"sqlalchemy": sqlalchemy} | ({"mlflow": mlflow} if mlflow else {})
    assert tuple(undeclared_limits.of(versions)) == limits


@pytest.mark.parametrize(
    ("versions", "limits"),
    [
        ({"mlflow": "1.23.1", "protobuf": "4.24.4"}, ("protobuf<3.21",)),
        ({"mlflow-skinny": "1.26.1", "protobuf": "5.29.5"}, ("protobuf<3.21",)),
        ({"mlflow": "1.23.1", "protobuf": "3.20.3"}, ()),
        ({"mlflow": "1.27.0", "protobuf": "4.24.4"}, ()),
        ({"mlflow": "1.23.1", "numpy": "1.24.4"}, ("numpy<1.24",)),
        ({"mlflow": "1.26.1", "numpy": "1.24.4"}, ()),
        ({"mlflow": "1.26.1", "mlflow-skinny": "2.17.2"}, ("mlflow-skinny<2",)),
        ({"mlflow": "1.30.0", "mlflow-skinny": "1.30.1"}, ()),
        ({"mlflow": "2.17.2", "mlflow-skinny": "2.17.2"}, ()),
    ],
)
def test_mlflow_1_needs_what_was_there_in_its_time(
    versions: dict[str, str], limits: tuple[str, ...]
) -> None:
    assert tuple(undeclared_limits.of(versions)) == limits


@pytest.mark.parametrize(
    ("gunicorn", "setuptools", "limits"),
    [
        ("20.1.0", "84.2.1", ("setuptools<82",)),
        ("20.1.0", "81.0.0", ()),
        ("21.2.0", "84.2.1", ()),
    ],
)
def test_gunicorn_before_21_needs_setuptools_with_pkg_resources(
    gunicorn: str, setuptools: str, limits: tuple[str, ...]
) -> None:
    versions = {"gunicorn": gunicorn, "setuptools": setuptools}
    assert tuple(undeclared_limits.of(versions)) == limits


@pytest.mark.parametrize(
    ("plugin", "skinny", "limits"),
    [
        ("1.44.0", "3.1.4", ("mlflow-skinny<3.1",)),
        ("1.60.0", "3.15.0", ("mlflow-skinny<3.1",)),
        ("1.60.0", "3.0.1", ()),
        ("1.62.0.post6", "3.15.0", ()),
    ],
)
def test_azures_plugin_before_1_61_needs_mlflow_before_3_1(
    plugin: str, skinny: str, limits: tuple[str, ...]
) -> None:
    versions = {"azureml-mlflow": plugin, "mlflow-skinny": skinny}
    assert tuple(undeclared_limits.of(versions)) == limits


@pytest.mark.parametrize(
    ("versions", "limits"),
    [
        ({"scikit-learn": "1.2.2", "numpy": "2.4.1"}, ("numpy<2",)),
        ({"scikit-learn": "1.4.1.post1", "numpy": "2.0.0"}, ("numpy<2",)),
        ({"scikit-learn": "1.4.2", "numpy": "2.4.1"}, ()),
        ({"scikit-learn": "1.2.2", "numpy": "1.26.4"}, ()),
        ({"scikit-learn": "1.2.2"}, ()),
        ({"torch": "2.2.2+cpu", "numpy": "2.4.1"}, ("numpy<2",)),
        ({"torch": "2.3.0", "numpy": "2.4.1"}, ()),
        ({"pandas": "2.0.3", "onnxruntime": "1.17.3", "numpy": "2.4.1"}, ("numpy<2",)),
    ],
)
def test_what_was_made_for_numpy_1_needs_it(
    versions: dict[str, str], limits: tuple[str, ...]
) -> None:
    assert tuple(undeclared_limits.of(versions)) == limits


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [
        {"pip_requirements": ["scikit-learn==1.2.*", "numpy"]},
        {"conda_file": {"dependencies": ["pip", {"pip": ["scikit-learn==1.2.*"]}]}},
        # The old one comes with another package.
        {"pip_requirements": ["of-its-time"]},
    ],
    ids=["pip", "conda's pip", "indirectly"],
)
def test_pip_packages_of_before_numpy_2_get_numpy_1_and_the_log_says_why(
    make_environments: MakeEnvironments, machine: Machine, document: dict[str, Any]
) -> None:
    _put_numpy(machine)
    wheels.put(machine.wheels, "of-its-time", "1.0", ("scikit-learn<1.3",))
    environments = make_environments()
    spec = environments.resolver.resolve(document)
    environments.builds.run(spec)
    build = environments.records.last(spec.hash)
    assert build is not None
    versions = lock.pins(build.lock)
    assert (versions["numpy"], versions["scikit-learn"]) == ("1.26.4", "1.2.2")
    log = environments.folders.paths(spec.hash).log.read_text()
    assert "`numpy<2` is added: scikit-learn 1.2.2 does not work with numpy 2.1.0" in log


@pytest.mark.slow
def test_numpy_2_that_was_requested_stays_and_the_log_says_what_it_breaks(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    _put_numpy(machine)
    environments = make_environments()
    document = {"pip_requirements": ["scikit-learn==1.2.2", "numpy==2.1.0"]}
    spec = environments.resolver.resolve(document)
    environments.builds.run(spec)
    build = environments.records.last(spec.hash)
    assert build is not None and lock.pins(build.lock)["numpy"] == "2.1.0"
    log = environments.folders.paths(spec.hash).log.read_text()
    assert "`numpy<2` can't be added" in log
    assert "scikit-learn 1.2.2 does not work with numpy 2.1.0" in log


def _put_numpy(machine: Machine) -> None:
    for version in ("1.26.4", "2.1.0"):
        wheels.put(machine.wheels, "numpy", version)
    for version in ("1.2.2", "1.5.0"):
        wheels.put(machine.wheels, "scikit-learn", version, ("numpy>=1.17",))


@pytest.mark.slow
def test_an_older_version_is_taken_where_there_is_one(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "mlflow-skinny", "1.30.1")
    wheels.put(machine.wheels, "azureml-mlflow", "1.54.0", ("mlflow-skinny",))
    wheels.put(machine.wheels, "azureml-mlflow", "1.55.0", ("mlflow-skinny",))
    environments = make_environments()

    def versions(line: str) -> dict[str, str]:
        spec = environments.resolver.resolve({"pip_requirements": [line]})
        environments.builds.run(spec)
        build = environments.records.last(spec.hash)
        assert build is not None
        return lock.pins(build.lock)

    assert versions("azureml-mlflow") == {"azureml-mlflow": "1.54.0", "mlflow-skinny": "1.30.1"}
    pinned = versions("azureml-mlflow==1.55.0")
    assert pinned == {"azureml-mlflow": "1.55.0", "mlflow-skinny": "1.30.1"}
