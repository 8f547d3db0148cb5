"""`yard batch-endpoint` and `batch-deployment`."""
