"""`yard online-endpoint`, `online-deployment` and `model deploy`."""
