"""Environments that exist by name: curated ones, Azure's published names, substitutes."""
