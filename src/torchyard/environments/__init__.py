"""Environments: Pythons with packages for jobs, built once for each content and shared."""
