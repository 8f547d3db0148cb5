"""Azure's inference server in an environment whose versions it does not allow."""

from __future__ import annotations

import pytest

from environments import wheels
from environments.conftest import Machine, MakeEnvironments
from torchyard.base.errors import BuildFailed
from torchyard.environments.packages import lock

_SERVER = "azureml-inference-server-http"


@pytest.mark.slow
def test_its_limits_give_way_to_the_versions_that_are_pinned(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "flask", "3.1.3", ("werkzeug>=3",))
    wheels.put(machine.wheels, "werkzeug", "2.0")
    wheels.put(machine.wheels, "werkzeug", "3.0")
    wheels.put(machine.wheels, "waitress", "3.0")
    wheels.put(machine.wheels, _SERVER, "1.1", ("flask<=2.3.2", "werkzeug<3"))
    wheels.put(machine.wheels, _SERVER, "1.5", ("flask==3.0.0", "waitress", "werkzeug<3"))
    environments = make_environments()
    spec = environments.resolver.resolve({"pip_requirements": ["flask==3.1.3", _SERVER]})
    folder = environments.builds.run(spec)
    build = environments.records.last(spec.hash)
    assert build is not None and lock.pins(build.lock) == {
        "flask": "3.1.3",
        "werkzeug": "3.0",
        "waitress": "3.0",
        _SERVER: "1.5",
    }
    assert list(folder.glob("lib/python3*/site-packages/azureml_inference_server_http-1.5*"))


@pytest.mark.slow
def test_what_is_wrong_without_the_server_is_what_the_error_names(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "flask", "3.1.3", ("werkzeug>=3",))
    wheels.put(machine.wheels, "werkzeug", "2.0")
    wheels.put(machine.wheels, _SERVER, "1.1", ("flask<=2.3.2",))
    environments = make_environments()
    spec = environments.resolver.resolve({"pip_requirements": ["flask==3.1.3", _SERVER]})
    with pytest.raises(BuildFailed, match="werkzeug"):
        environments.builds.run(spec)


@pytest.mark.slow
def test_a_version_of_the_server_that_is_named_does_not_give_way(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "flask", "3.1.3")
    wheels.put(machine.wheels, _SERVER, "1.1", ("flask<=2.3.2",))
    environments = make_environments()
    spec = environments.resolver.resolve({"pip_requirements": ["flask==3.1.3", f"{_SERVER}==1.1"]})
    with pytest.raises(BuildFailed, match=_SERVER):
        environments.builds.run(spec)
