"""`yard job` and its verbs."""
