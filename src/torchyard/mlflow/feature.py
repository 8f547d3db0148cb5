"""What MLflow's API registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    routes={
        ("/api", "/ajax-api", "/get-artifact", "/model-versions", "//model-versions", "/version"): [
            "mlflow.routes"
        ],
    },
    is_described=False,
)
