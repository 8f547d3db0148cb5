"""Every operation, in the order of doing: jobs begin early, and are looked at late."""

import workspace_operations  # noqa: F401  isort: skip
import job_operations  # noqa: F401  isort: skip
import asset_operations  # noqa: F401  isort: skip
import model_operations  # noqa: F401  isort: skip
import compute_operations  # noqa: F401  isort: skip
import plugin_operations  # noqa: F401  isort: skip
import sweep_operations  # noqa: F401  isort: skip
import pipeline_operations  # noqa: F401  isort: skip
import endpoint_operations  # noqa: F401  isort: skip
import connection_operations  # noqa: F401  isort: skip
import refused_operations  # noqa: F401  isort: skip
import bad_input_operations  # noqa: F401  isort: skip
import ended_job_operations  # noqa: F401  isort: skip
from operations import OPERATIONS

__all__ = ["OPERATIONS"]
