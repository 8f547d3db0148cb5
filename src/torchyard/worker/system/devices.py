"""The GPUs that a node's ranks see.

Owns: CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES of a rank.
Leaves: which devices a node has to the engine, the one of a rank to its script (LOCAL_RANK).
Always: a node sees its own devices and no others; the numbers in a user's own variables count
within these.

Sources: CUDA programming guide, "CUDA environment variables"; ROCm's "GPU isolation techniques".
"""

from __future__ import annotations

from typing import Optional

from torchyard.shared.plan import DevicePlan, LaunchPlan

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
_ORDER, _AS_LISTED = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


def variables(plan: LaunchPlan, node: int) -> dict[str, str]:
    """Of every rank of the node; none on a machine without GPUs."""
    if not plan.devices:
        return {}
    user_variables = plan.environment_variables
    devices = plan.devices[node]
    chosen = _chosen(devices, user_variables.get(CUDA, user_variables.get(HIP)))
    if devices and devices[0].kind == "amd":
        # ROCr hides all others, and HIP counts the devices that ROCr shows.
        indices = ",".join(str(index) for index in range(len(chosen)))
        return {ROCR: ",".join(_names(chosen)), HIP: indices, CUDA: indices}
    # nvidia-smi counts by bus, CUDA by default by speed.
    order = user_variables.get(_ORDER, _AS_LISTED)
    if order == _AS_LISTED:
        # An engine may know a card by its UUID alone; its index is -1 then.
        visible = ",".join(
            str(device.index) if device.index >= 0 else device.uuid for device in chosen
        )
    else:
        visible = ",".join(device.uuid for device in chosen)
    return {CUDA: visible, HIP: visible, ROCR: visible, _ORDER: order}


def _chosen(devices: list[DevicePlan], names: Optional[str]) -> list[DevicePlan]:
    """The node's devices, or those among them that the user's own variable names.

    As CUDA reads it: everything after a name that does not exist is invisible.
    """
    if names is None:
        return devices
    chosen: list[DevicePlan] = []
    for name in names.split(","):
        device = _find_device(devices, name.strip())
        if device is None or device in chosen:
            break
        chosen.append(device)
    return chosen


def _find_device(devices: list[DevicePlan], name: str) -> Optional[DevicePlan]:
    if name.isdigit():
        return devices[int(name)] if int(name) < len(devices) else None
    return next((device for device in devices if name and device.uuid.startswith(name)), None)


def _names(chosen: list[DevicePlan]) -> list[str]:
    """UUIDs, and the index of a card that has none."""
    return [
        device.uuid if device.uuid.startswith("GPU-") else str(device.index) for device in chosen
    ]
