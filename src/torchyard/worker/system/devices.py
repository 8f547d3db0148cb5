"""Which GPUs a node's ranks see.

Owns: CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES of a rank.
Leaves: which devices a node has to the engine, the one of a rank to its script (LOCAL_RANK).
Always: a node sees its own devices and no others; what the user writes about devices is counted
among those.

Sources: CUDA programming guide, "CUDA environment variables"; ROCm's "GPU isolation techniques".
"""

from __future__ import annotations

from typing import Optional

from torchyard.shared.plan import DevicePlan, LaunchPlan

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
_ORDER, _AS_LISTED = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


def variables(plan: LaunchPlan, node: int) -> dict[str, str]:
    """Nothing on a machine without GPUs."""
    if not plan.devices:
        return {}
    asked = plan.environment_variables
    own = plan.devices[node]
    chosen = _chosen(own, asked.get(CUDA, asked.get(HIP)))
    if own and own[0].kind == "amd":
        # ROCr leaves only these, and HIP counts among what ROCr leaves.
        places = ",".join(str(place) for place in range(len(chosen)))
        return {ROCR: ",".join(_names(chosen)), HIP: places, CUDA: places}
    # nvidia-smi counts by bus, CUDA by speed unless it is told.
    order = asked.get(_ORDER, _AS_LISTED)
    if order == _AS_LISTED:
        seen = ",".join(str(device.index) for device in chosen)
    else:
        seen = ",".join(device.uuid for device in chosen)
    return {CUDA: seen, HIP: seen, ROCR: seen, _ORDER: order}


def _chosen(own: list[DevicePlan], written: Optional[str]) -> list[DevicePlan]:
    """The node's devices, or those among them that the user's own variable names.

    As CUDA reads it: what stands behind a number that there is not, is not seen.
    """
    if written is None:
        return own
    chosen: list[DevicePlan] = []
    for word in written.split(","):
        found = _named(own, word.strip())
        if found is None or found in chosen:
            break
        chosen.append(found)
    return chosen


def _named(own: list[DevicePlan], word: str) -> Optional[DevicePlan]:
    if word.isdigit():
        return own[int(word)] if int(word) < len(own) else None
    return next((device for device in own if word and device.uuid.startswith(word)), None)


def _names(chosen: list[DevicePlan]) -> list[str]:
    """UUIDs, and the index of a card that has none."""
    return [one.uuid if one.uuid.startswith("GPU-") else str(one.index) for one in chosen]
