"""Packages that need newer or older versions of others than their metadata say."""

from __future__ import annotations

import pytest

from environments import wheels
from environments.conftest import Machine, MakeEnvironments
from torchyard.environments.packages import lock


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
    assert lock.undeclared_limits(versions) == limits


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
    assert lock.undeclared_limits(versions) == limits


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
    assert lock.undeclared_limits(versions) == limits


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
    assert lock.undeclared_limits({"azureml-mlflow": plugin, "mlflow-skinny": skinny}) == limits


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
