"""Batch endpoints and their deployments, over HTTP."""
