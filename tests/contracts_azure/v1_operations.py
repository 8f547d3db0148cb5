"""Every operation of SDK v1, in the order of doing: runs begin early, and are looked at late."""

import v1_workspace_operations  # noqa: F401  isort: skip
import v1_run_operations  # noqa: F401  isort: skip
import v1_sweep_operations  # noqa: F401  isort: skip
import v1_local_operations  # noqa: F401  isort: skip
import v1_asset_operations  # noqa: F401  isort: skip
import v1_experiment_operations  # noqa: F401  isort: skip
import v1_bad_input_operations  # noqa: F401  isort: skip
import v1_service_operations  # noqa: F401  isort: skip
import v1_refused_operations  # noqa: F401  isort: skip
import v1_ended_run_operations  # noqa: F401  isort: skip
from v1_world import OPERATIONS

__all__ = ["OPERATIONS"]
