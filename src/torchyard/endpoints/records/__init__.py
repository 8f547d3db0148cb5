"""Rows of endpoints, deployments and instances."""
