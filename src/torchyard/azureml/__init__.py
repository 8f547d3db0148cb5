"""Azure ML's protocols: its clients' requests become actions of other packages, and responses
Azure's JSON.
"""

ENTRY_PATHS = ("/metadata", "/discovery", "/registrymanagement", "/msi", "/v1/client-env", "/runs")
"""The paths of entry_routes.py."""

PATHS = ("/azureml", "/azureml-above", "/azureml-blob", *ENTRY_PATHS)
"""The paths that apis.py answers, with all that is below; common/paths.py makes the first three."""
