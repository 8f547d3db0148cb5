"""What Azure ML's APIs registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    routes={
        ("/metadata", "/discovery", "/registrymanagement", "/msi", "/v1/client-env", "/runs"): [
            "azureml.entry_routes"
        ],
        ("/azureml", "/azureml-above", "/azureml-blob"): ["azureml.apis"],
    },
    is_described=False,
)
