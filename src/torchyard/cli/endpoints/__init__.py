"""`yard online-endpoint` and `yard online-deployment`."""
