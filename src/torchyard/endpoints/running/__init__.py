"""Keeps the instances of deployments going, and the router."""
