"""Azure ML's protocols: its clients' requests become actions of other packages, and responses
Azure's JSON.
"""

PATHS = ("/azureml", "/azureml-above", "/azureml-blob")
"""The paths that apis.py answers, with all that is below; common/paths.py makes them."""

ENTRY_PATHS = ("/metadata", "/discovery", "/registrymanagement", "/msi", "/v1/client-env", "/runs")
"""The paths that entry_routes.py answers."""
