"""The services that only azureml-core (SDK v1) calls."""
