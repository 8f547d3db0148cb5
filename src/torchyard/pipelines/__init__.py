"""Pipelines: jobs whose steps are jobs."""
