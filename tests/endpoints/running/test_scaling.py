"""How many instances are wanted."""

from __future__ import annotations

from typing import Any

from torchyard.endpoints.running.scaling import Load, Scale
from torchyard.endpoints.spec import deployment_spec
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec


def spec(least: int = 1, maximum: int = 5, **keys: Any) -> DeploymentSpec:
    scale = {"type": "target_utilization", "min_instances": least, "max_instances": maximum}
    return deployment_spec.read(
        {
            "name": "blue",
            "endpoint_name": "prices",
            "scale_settings": {**scale, "target_utilization_percentage": 50},
            "torchyard": {"scale_to_zero_after_s": 100},
            **keys,
        }
    )


def test_a_fixed_number_stays() -> None:
    fixed = deployment_spec.read({"name": "blue", "endpoint_name": "prices", "instance_count": 3})
    assert Scale(0, 0.0).target_count(fixed, None, 0.0) == 3


def test_it_grows_at_once_and_shrinks_one_by_one() -> None:
    scale = Scale(1, 0.0)
    assert scale.target_count(spec(), Load(0, 0.0), 0.0) == 1
    # Two slots were busy all the time: at 50 % these are four instances.
    assert scale.target_count(spec(), Load(10, 20.0, 2), 10.0) == 4
    assert scale.target_count(spec(), Load(10, 20.0), 20.0) == 4
    assert scale.target_count(spec(), Load(10, 20.0), 71.0) == 3
    assert scale.target_count(spec(), Load(10, 20.0), 72.0) == 3


def test_never_beyond_its_bounds() -> None:
    scale = Scale(0, 0.0)
    assert scale.target_count(spec(2, 3), Load(0, 0.0), 0.0) == 2
    assert scale.target_count(spec(2, 3), Load(100, 100.0, 9, 9), 10.0) == 3


def test_it_sleeps_after_a_time_without_requests_and_wakes_for_one() -> None:
    scale = Scale(1, 0.0)
    assert scale.target_count(spec(0), Load(5, 1.0), 0.0) == 1
    assert scale.target_count(spec(0), Load(6, 1.1), 90.0) == 1
    assert scale.target_count(spec(0), Load(6, 1.1), 150.0) == 1
    assert scale.target_count(spec(0), Load(6, 1.1), 200.0) == 0
    assert scale.target_count(spec(0), Load(6, 1.1), 300.0) == 0
    assert scale.target_count(spec(0), Load(6, 1.1, is_waited_for=True), 301.0) == 1


def test_a_router_that_begins_again_changes_nothing() -> None:
    scale = Scale(2, 0.0)
    assert scale.target_count(spec(), Load(100, 50.0), 0.0) == 2
    assert scale.target_count(spec(), None, 5.0) == 2
    assert scale.target_count(spec(), Load(0, 0.0), 10.0) == 2
