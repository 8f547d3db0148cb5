"""The rows of pipelines and of their steps."""
