"""Compute instances: a person's own JupyterLab on a node."""
