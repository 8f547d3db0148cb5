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
    named = versions("azureml-mlflow==1.55.0")
    assert named == {"azureml-mlflow": "1.55.0", "mlflow-skinny": "1.30.1"}
