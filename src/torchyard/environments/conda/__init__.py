"""Conda files, and conda's own packages."""
