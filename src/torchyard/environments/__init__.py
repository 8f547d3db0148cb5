"""Environments: what a job's Python holds, built once for each content and shared."""
