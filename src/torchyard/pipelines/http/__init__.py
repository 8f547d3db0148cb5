"""HTTP: pipelines."""
