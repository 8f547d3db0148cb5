"""The names of ort_moe, a Mixture of Experts, over torch and torch.distributed.

Owns: the package's names.
Leaves: everything to its modules.
Always: what is not served raises with its name.
"""

from __future__ import annotations

from ort_moe import experts, grids, layers, loss_functions, moe, topKgate, utils

__all__ = ["experts", "grids", "layers", "loss_functions", "moe", "topKgate", "utils"]
