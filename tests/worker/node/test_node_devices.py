"""What a node's ranks see of GPUs, and the limits of its cgroup."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.shared.plan import DevicePlan, LaunchPlan, from_json
from torchyard.worker.system import devices


def plan(kind: str = "nvidia", **changes: Any) -> LaunchPlan:
    """Two nodes of two devices each."""
    node_devices = [[DevicePlan(kind, n, f"GPU-{n}a") for n in pair] for pair in ((0, 3), (5, 6))]
    texts = dict.fromkeys(
        (
            "attempt_id", "job", "workspace", "experiment", "command", "server_url",
            "report_token", "run_token", "scratch",
        ),
        "x",
    )  # fmt: skip
    return LaunchPlan(
        **{**texts, "attempt": 1, "node_count": 2, "devices": node_devices, **changes}
    )


def seen(plan: LaunchPlan, node: int = 0) -> str | None:
    return devices.variables(plan, node).get(devices.CUDA)


def test_each_node_sees_its_own_devices() -> None:
    assert devices.variables(plan(), 0) == {
        "CUDA_VISIBLE_DEVICES": "0,3",
        "HIP_VISIBLE_DEVICES": "0,3",
        "ROCR_VISIBLE_DEVICES": "0,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert seen(plan(), 1) == "5,6"
    assert from_json(plan().to_json()) == plan()


def test_a_card_that_an_engine_knows_by_its_uuid_alone_is_named_by_it() -> None:
    cards = [[DevicePlan("nvidia", -1, "GPU-12ab"), DevicePlan("nvidia", 4, "GPU-4a")], []]
    assert seen(plan(devices=cards)) == "GPU-12ab,4"


def test_a_machine_without_gpus_does_not_change_the_variables() -> None:
    assert devices.variables(plan(devices=[]), 0) == {}


def test_a_cpu_node_on_a_gpu_machine_sees_no_gpus() -> None:
    assert seen(plan(devices=[[], []])) == ""


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0", "0"), ("1", "3"), ("1,0", "3,0"), ("", ""), ("-1", ""), ("0,7,1", "0"),
        ("GPU-3", "3"), ("0,0", "0"), ("NoDevFiles", ""),
    ],
)  # fmt: skip
def test_the_users_device_numbers_refer_to_the_nodes_devices(written: str, expected: str) -> None:
    assert seen(plan(environment_variables={"CUDA_VISIBLE_DEVICES": written})) == expected


def test_devices_in_another_order_are_given_by_name() -> None:
    made = plan(environment_variables={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert devices.variables(made, 0)["CUDA_VISIBLE_DEVICES"] == "GPU-0a,GPU-3a"


def test_hip_numbers_refer_to_the_devices_that_rocr_leaves() -> None:
    assert devices.variables(plan("amd"), 1) == {
        "ROCR_VISIBLE_DEVICES": "GPU-5a,GPU-6a",
        "HIP_VISIBLE_DEVICES": "0,1",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    without = [[DevicePlan("amd", 2, "amd-2")]]
    variables = devices.variables(plan("amd", devices=without, node_count=1), 0)
    assert variables["ROCR_VISIBLE_DEVICES"] == "2"
