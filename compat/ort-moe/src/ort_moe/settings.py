"""The options that layers and gates take as a mapping.

Owns: which are acted on, which need nothing here, which are refused.
Leaves: acting on them to the layers.
Always: an option that would change results and isn't served raises with its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# They tune the original's own kernels and messages.
_NEEDS_NOTHING = frozenset(
    {
        "verbose", "enable_tutel_cumsum", "enable_expert_weight_calculation_optimization",
        "imbalanced_input_support", "nvidia_apex_opt_level", "fp16_mode",
    }
)  # fmt: skip
_REFUSED = frozenset(
    {"enable_base_layer_shuffling", "enable_dynamic_capacity", "fsdp_zero_optimization"}
)


@dataclass(frozen=True)
class Settings:
    """`is_merged` puts a rank's experts into one pair of tensors, `is_checkpointed` computes them
    again in the backward pass, `is_for_zero` tags them for DeepSpeed's ZeRO.
    """

    is_merged: bool = True
    is_checkpointed: bool = False
    is_for_zero: bool = False

    @classmethod
    def read(cls, options: Mapping[str, Any] | None) -> Settings:
        """
        Raises:
            NotImplementedError: an option is not served.
            ValueError: there is none of that name.
        """
        options = options or {}
        for name, value in options.items():
            if name in _REFUSED and value and not _is_stage_0(value):
                raise NotImplementedError(f"torchyard's ort_moe has no option `{name}`")
        zero = options.get("deepspeed_zero_optimization") or {}
        served = {"merged_experts", "checkpoint_experts", "deepspeed_zero_optimization"}
        unknown = sorted(set(options) - served - _NEEDS_NOTHING - _REFUSED)
        if unknown:
            raise ValueError(f"ort_moe has no option `{unknown[0]}`")
        return cls(
            bool(options.get("merged_experts", True)),
            bool(options.get("checkpoint_experts", False)),
            not _is_stage_0(zero),
        )


def _is_stage_0(value: Any) -> bool:
    return isinstance(value, Mapping) and not value.get("stage", 0)
