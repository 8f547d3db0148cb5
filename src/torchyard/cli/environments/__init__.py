"""`yard environment` and its verbs."""
